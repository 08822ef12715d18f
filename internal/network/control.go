package network

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"holt"
	"holt/internal/engine/machine"
)

// callLimit bounds a call. The process answers in milliseconds.
const callLimit = 10 * time.Second

// status is the status of a network's process.
type status struct {
	Process machine.Process `json:"process"`
	Machine machine.Process `json:"machine"` // that it serves
	Secrets int             `json:"secrets"` // number
}

// control is the API for the daemon:
//
//	GET /status     status
//	GET /attached   status, once the process is connected to the machine
//	GET /traffic    traffic by destination
//	POST /reload    reads policy and secrets again; status, once they are in effect
func (p *process) control() http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) { json.NewEncoder(w).Encode(v) }
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { answer(w, p.status()) })
	mux.HandleFunc("GET /attached", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-p.attached:
			answer(w, p.status())
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("GET /traffic", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, sum(p.traffic.before, p.stack.Traffic()))
	})
	mux.HandleFunc("POST /reload", func(w http.ResponseWriter, _ *http.Request) {
		if err := p.reload(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer(w, p.status())
	})
	return mux
}

func (p *process) status() status { return status{p.self, p.machine, int(p.secrets.Load())} }

// call calls the process of a machine's directory. The error is [machine.ErrGone] if it does not listen.
func call(ctx context.Context, dir *machine.Dir, method, path string, into any) error {
	c := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dir.Dial(ctx, controlSocket) },
	}}
	q, err := http.NewRequestWithContext(ctx, method, "http://network"+path, nil)
	if err != nil {
		return err
	}
	a, err := c.Do(q)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	b, err := io.ReadAll(io.LimitReader(a.Body, mostFile))
	if err == nil && a.StatusCode != http.StatusOK {
		err = errors.New(string(b[:min(len(b), 200)]))
	}
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return holt.Errorf(holt.Unavailable, "network of machine in %s: %w", dir.Path, err)
	}
	return nil
}
