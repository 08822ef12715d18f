package daemon

import (
	"context"
	"strings"
	"time"

	"holt"
	"holt/internal/audit"
	"holt/internal/door/sshd"
)

// recordSSH adds an event of the SSH door to the audit log. It leaves commands out: they may contain secrets.
func (d *Daemon) recordSSH(ctx context.Context, e sshd.Event) {
	a := holt.AuditEntry{Door: "ssh", Remote: e.From, Op: e.What, Noun: "ssh", Ref: e.Computer, Request: e.Connection, Code: "ok", TookMS: float64(time.Since(e.Started).Microseconds()) / 1000}
	if e.User != "" {
		a.Ref += " user=" + e.User
	}
	if e.What == "forward" || e.What == "listen" {
		a.Ref += " to=" + holt.Clip(e.Detail, 200)
	}
	if e.What == "connect" {
		a.Code = "begun"
	}
	if e.Err != nil {
		a.Code = string(holt.CodeOf(e.Err))
	}
	if e.What == "refuse" {
		a.Actor, a.Code = "nobody", string(holt.Unauthenticated)
	} else if a = audit.Who(ctx, a); a.Actor == "person" {
		if a.Tenant == "" {
			a.Tenant = holt.DefaultTenant
		}
		if strings.HasPrefix(e.Who, "key_") {
			a.Name = e.Who
		}
	}
	d.audit.Record(context.WithoutCancel(ctx), a)
}
