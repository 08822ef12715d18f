// Package server is the HTTP door.
package server

import (
	"context"
	"log/slog"
	"net"

	"holt"
)

// Options configure a [Server].
type Options struct {
	Nouns   Nouns
	Tokens  Tokens       // nil: no one may come over TCP
	Hosts   []string     // host names by which TCP callers may reach it, besides IP addresses and localhost
	Version string       // of holt, in the OpenAPI document
	Log     *slog.Logger // nil: slog.Default()
}

// Server answers the API on any number of listeners.
type Server struct{ opt Options }

// New returns a server. It does no I/O.
func New(opt Options) *Server { return &Server{opt: opt} }

// ServeLocal answers callers of a unix socket, who need no token: the socket's
// permissions are the check. It returns nil after Shutdown or Close.
func (s *Server) ServeLocal(l net.Listener) error {
	return holt.Errorf(holt.Unsupported, "not yet")
}

// ServeTCP answers callers from anywhere, each with a bearer token, from
// loopback too. It returns nil after Shutdown or Close.
func (s *Server) ServeTCP(l net.Listener) error { return holt.Errorf(holt.Unsupported, "not yet") }

// Shutdown refuses new calls, ends streams (their clients come again) and
// waits for the other calls in flight, until ctx ends.
func (s *Server) Shutdown(ctx context.Context) error { return nil }

// Close cuts every call at once.
func (s *Server) Close() error { return nil }
