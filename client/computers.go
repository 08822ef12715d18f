package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"holt"
)

// Computers are the machines.
type Computers struct{ c *Client }

// Create makes and starts a computer, and returns when its agent answers.
func (n Computers) Create(ctx context.Context, spec holt.ComputerSpec, key string) (out holt.Computer, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("computers"), body: spec, keyed: true, key: key}, &out)
	return out, err
}

// Get returns a computer by name or id.
func (n Computers) Get(ctx context.Context, ref string) (out holt.Computer, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("computers", ref)}, &out)
	return out, err
}

// List returns all computers in the order of their names.
func (n Computers) List(ctx context.Context) ([]holt.Computer, error) {
	return list[holt.Computer](ctx, n.c, join("computers"), nil)
}

// Start returns when the agent answers.
func (n Computers) Start(ctx context.Context, ref, key string) (out holt.Computer, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("computers", ref, "start"), keyed: true, key: key}, &out)
	return out, err
}

// Stop shuts a computer down; both disks stay.
func (n Computers) Stop(ctx context.Context, ref, key string) (out holt.Computer, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("computers", ref, "stop"), keyed: true, key: key}, &out)
	return out, err
}

// Delete removes a computer, its root disk, its snapshots, and the workspace that was made with it.
func (n Computers) Delete(ctx context.Context, ref, key string) (out holt.DeletedComputer, err error) {
	err = n.c.json(ctx, call{method: http.MethodDelete, path: join("computers", ref), keyed: true, key: key}, &out)
	return out, err
}

// Logs writes the machine's console log to w.
func (n Computers) Logs(ctx context.Context, ref string, q holt.LogQuery, w io.Writer) error {
	query := url.Values{}
	if q.TailBytes > 0 {
		query.Set("tail_bytes", strconv.FormatInt(q.TailBytes, 10))
	}
	if q.Follow {
		query.Set("follow", "true")
	}
	return n.c.copyTo(ctx, call{method: http.MethodGet, path: join("computers", ref, "logs"), query: query}, w)
}

// copyTo writes an answer that is not JSON to w.
func (c *Client) copyTo(ctx context.Context, k call, w io.Writer) error {
	return c.copyPart(ctx, k, 0, -1, w)
}

// copyPart writes n bytes from off on, n < 0: up to the end, of an answer that is that part (status 206) or the whole.
func (c *Client) copyPart(ctx context.Context, k call, off, n int64, w io.Writer) error {
	resp, err := sent(ctx, c, func() (*http.Response, error) { return c.open(ctx, k) })
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	out, body := &toWriter{w: w}, io.Reader(resp.Body)
	if resp.StatusCode == http.StatusOK {
		if _, err := io.CopyN(io.Discard, body, off); err != nil && err != io.EOF { // an end before off leaves nothing to write
			return c.broken(ctx, err)
		}
		if n >= 0 {
			body = io.LimitReader(body, n)
		}
	}
	if _, err := io.Copy(out, body); err != nil {
		if out.err != nil {
			return out.err
		}
		return c.broken(ctx, err)
	}
	return nil
}

// toWriter tells an error of the writer from one of the connection.
type toWriter struct {
	w   io.Writer
	err error
}

func (t *toWriter) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	t.err = err
	return n, err
}
