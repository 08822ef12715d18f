package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"slices"

	"holt"
	"holt/internal/access"
	"holt/internal/audit"
	"holt/internal/cli"
	"holt/internal/daemon"
	"holt/internal/door/httpapi"
	"holt/internal/door/s3"
	"holt/internal/loopback"
	"holt/internal/network"
)

// Where clients of S3 are listened for unless it is said, and what says nowhere.
const (
	s3Default = "localhost:4649"
	s3Off     = "off"
)

// newS3 is the door of clients of S3.
func newS3(d *daemon.Daemon, opt cli.ServeOptions, trusted access.Proxies, failures *access.Rate, log *slog.Logger) *s3.Door {
	keys, objects := d.S3()
	return s3.New(s3.Options{
		Keys: keys, Objects: objects, Names: append(slices.Clone(opt.S3Hosts), "localhost"),
		Calls: calls(opt.CallRate), Tenants: calls(10 * opt.CallRate), Failures: failures, Trusted: trusted, Log: log,
		Record: func(ctx context.Context, e holt.AuditEntry) { d.Audit().Record(ctx, audit.Who(ctx, e)) },
	})
}

// ownOf answers what computers ask for at holt.internal and s3.holt.internal.
func ownOf(d *daemon.Daemon, s *httpapi.Server, objects *s3.Door) func(holt.ComputerID) http.Handler {
	return func(id holt.ComputerID) http.Handler {
		api := s.Own(id)
		own := objects.Own(func(ctx context.Context) (holt.Actor, error) { return d.Actor(ctx, id) })
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if network.OwnS3(r) {
				own.ServeHTTP(w, r)
				return
			}
			api.ServeHTTP(w, r)
		})
	}
}

// listenS3 opens the port for clients of S3; nil: there is none. If the default port is taken, by another daemon of this
// machine, the daemon serves without one.
func listenS3(address string, log *slog.Logger) (net.Listener, error) {
	l, err := listen(cmp.Or(address, s3Default), loopback.Listen)
	if err == nil {
		return l, nil
	}
	if address == "" {
		log.Warn("not listening for clients of S3; choose another address with --s3-listen", "address", s3Default, "error", err)
		return nil, nil
	}
	return nil, holt.Errorf(holt.Unavailable, "cannot listen for clients of S3 on %s: %w", address, err).WithHint("choose another address with --s3-listen, or off")
}

// encrypted is a listener with the certificates of previews; nil: without any.
func encrypted(l net.Listener, with *tls.Config) net.Listener {
	if with == nil {
		return l
	}
	with = with.Clone()
	with.NextProtos = []string{"http/1.1"}
	return tls.NewListener(l, with)
}
