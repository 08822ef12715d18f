package client

import (
	"context"
	"io"
	"net/http"

	"holt"
	"holt/internal/api"
)

// Computers are the machines.
type Computers struct{ c *Client }

// Create makes and starts a computer, and returns when its agent answers.
func (n Computers) Create(ctx context.Context, spec holt.ComputerSpec, key string) (holt.Computer, error) {
	return do(ctx, n.c, api.CreateComputer, api.Body[holt.ComputerSpec]{api.Keyed{key}, spec})
}

// Get returns a computer by name or id.
func (n Computers) Get(ctx context.Context, ref string) (holt.Computer, error) {
	return do(ctx, n.c, api.GetComputer, api.OneComputer{ref})
}

// List returns all computers in the order of their names.
func (n Computers) List(ctx context.Context) ([]holt.Computer, error) {
	return doList(ctx, n.c, api.ListComputers, api.Paging{})
}

// Start returns when the agent answers.
func (n Computers) Start(ctx context.Context, ref, key string) (holt.Computer, error) {
	return do(ctx, n.c, api.StartComputer, api.ComputerKeyed{api.OneComputer{ref}, api.Keyed{key}})
}

// Stop shuts a computer down; both disks stay.
func (n Computers) Stop(ctx context.Context, ref, key string) (holt.Computer, error) {
	return do(ctx, n.c, api.StopComputer, api.ComputerKeyed{api.OneComputer{ref}, api.Keyed{key}})
}

// Delete removes a computer, its root disk, its snapshots, and the workspace that was made with it.
func (n Computers) Delete(ctx context.Context, ref, key string) (holt.DeletedComputer, error) {
	return do(ctx, n.c, api.DeleteComputer, api.ComputerKeyed{api.OneComputer{ref}, api.Keyed{key}})
}

// Logs writes the machine's console log to w.
func (n Computers) Logs(ctx context.Context, ref string, q holt.LogQuery, w io.Writer) error {
	return n.c.copyTo(ctx, callOf(api.ComputerLogs, api.ComputerLog{api.OneComputer{ref}, max(0, q.TailBytes), q.Follow}), w)
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

// Awake says why a computer is awake and when it is paused.
func (n Computers) Awake(ctx context.Context, ref string) (holt.Awake, error) {
	return do(ctx, n.c, api.WhyAwake, api.OneComputer{ref})
}

// Update renames a computer, or changes when it is paused for being idle.
func (n Computers) Update(ctx context.Context, ref string, change holt.ComputerUpdate, key string) (holt.Computer, error) {
	return do(ctx, n.c, api.UpdateComputer, api.ComputerBody[holt.ComputerUpdate]{api.OneComputer{ref}, api.Keyed{key}, change})
}

// Hold keeps a computer awake until it expires or is released.
func (n Computers) Hold(ctx context.Context, ref string, spec holt.HoldSpec, key string) (holt.Hold, error) {
	return do(ctx, n.c, api.HoldComputer, api.ComputerBody[holt.HoldSpec]{api.OneComputer{ref}, api.Keyed{key}, spec})
}

// Holds returns the holds of a computer.
func (n Computers) Holds(ctx context.Context, ref string) ([]holt.Hold, error) {
	return doList(ctx, n.c, api.ListHolds, api.ComputerList{OneComputer: api.OneComputer{ref}})
}

// Release ends a hold.
func (n Computers) Release(ctx context.Context, ref string, id holt.HoldID, key string) error {
	return doNone(ctx, n.c, api.ReleaseHold, api.HoldKeyed{api.OneHold{api.OneComputer{ref}, string(id)}, api.Keyed{key}})
}

// Resize changes a computer's processors, memory or root disk.
func (n Computers) Resize(ctx context.Context, ref string, spec holt.ResizeSpec, key string) (holt.ResizedComputer, error) {
	return do(ctx, n.c, api.ResizeComputer, api.ComputerBody[holt.ResizeSpec]{api.OneComputer{ref}, api.Keyed{key}, spec})
}
