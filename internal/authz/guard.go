// Package authz checks each call at every door: it refuses calls that the caller's token does not permit.
//
// [Checker] checks calls of the API, [Sessions] those over SSH, [Port] those to previews, [Objects] those of clients of S3.
//
// The package does not enforce tenants: the lookups of the nouns do (see [holt.Confined]), so that an object of
// another tenant and an object that does not exist give the same error in the same time. It does not read tokens
// either; it gets the caller's rights as a [holt.Rights].
//
// The checks, in this order:
//
//   - A caller without a token (a person at the daemon's socket, the daemon itself) may do everything. A computer
//     that calls holt.internal may do a few things to itself.
//   - Host-wide calls (directories, archive, health, shutdown, limits, templates that are files) need an admin.
//   - A token without scopes may do everything in its tenant.
//   - A read-only token changes nothing. A token for Linux users acts only as these users. A token for computers,
//     workspaces or ports reaches only these, and lists show only these.
//
// A call that a token does not cover gets the same Forbidden error whether its object exists or not.
//
// Trap: a name can refer to another object later. Scopes are compared with ids.
package authz

import (
	"context"

	"holt"
	"holt/internal/nouns"
)

// guard holds the checks. It looks names up in n.
type guard struct{ n nouns.Set }

// operation is read or write.
type operation bool

const (
	read  operation = false
	write operation = true
)

// forbidden returns the error of a call that the caller's rights do not cover.
func forbidden(a holt.Actor) error {
	e := holt.Errorf(holt.Forbidden, "the token does not cover this")
	if a.Computer != "" {
		return holt.Errorf(holt.Forbidden, "a computer cannot do this to itself")
	}
	if all := a.Rights.Scopes(); len(all) > 0 {
		text := ""
		for i, s := range all {
			if i > 0 {
				text += ", "
			}
			text += string(s)
		}
		return e.WithHint("its scopes are %s", holt.Clip(text, 300))
	}
	return e.WithHint("it covers the tenant %s; calls that concern the whole host need the scope admin", a.Tenant)
}

// admin checks a host-wide call.
func (g *guard) admin(ctx context.Context) error {
	if a, _ := holt.ActorOf(ctx); !a.Admin() {
		return forbidden(a)
	}
	return nil
}

// host is admin for calls about all tenants. The context that it returns is not confined to one.
func (g *guard) host(ctx context.Context) (context.Context, error) {
	if err := g.admin(ctx); err != nil {
		return ctx, err
	}
	a, _ := holt.ActorOf(ctx)
	a.Tenant = ""
	return holt.WithActor(ctx, a), nil
}

// unrestricted returns the caller, and whether it may do everything in its tenant.
func unrestricted(ctx context.Context, op operation) (a holt.Actor, free bool, err error) {
	a, credential := holt.ActorOf(ctx)
	switch {
	case !credential, a.Schedule != "":
		return a, true, nil
	case a.Computer != "":
		return a, false, nil
	case op == write && a.Rights.ReadOnly:
		return a, false, forbidden(a)
	}
	return a, !a.Rights.Narrow() && len(a.Rights.Users) == 0, nil
}

// tenant checks a call about a whole tenant, such as one that creates something.
func (g *guard) tenant(ctx context.Context, op operation) error {
	a, free, err := unrestricted(ctx, op)
	if err == nil && !free && (a.Computer != "" || a.Rights.Narrow()) {
		err = forbidden(a)
	}
	return err
}

// computer checks a call about one computer, which a computer may not make about itself.
func (g *guard) computer(ctx context.Context, ref string, op operation) error {
	a, free, err := unrestricted(ctx, op)
	if err != nil || free {
		return err
	}
	if a.Computer != "" {
		return forbidden(a)
	}
	return g.coversComputer(ctx, a, ref)
}

// self checks a call about one computer, which a computer may make about itself.
func (g *guard) self(ctx context.Context, ref string, op operation) error {
	if a, _ := holt.ActorOf(ctx); a.Computer != "" {
		if ref != string(a.Computer) {
			return forbidden(a)
		}
		return nil
	}
	return g.computer(ctx, ref, op)
}

// coversComputer returns Forbidden unless the token covers the whole computer.
func (g *guard) coversComputer(ctx context.Context, a holt.Actor, ref string) error {
	if !a.Rights.Narrow() {
		return nil
	}
	if len(a.Rights.Computers) == 0 {
		return forbidden(a)
	}
	c, err := g.n.Computers.Get(ctx, ref)
	if holt.CodeOf(err) == holt.NotFound || err == nil && !a.Rights.Computer(c.ID) {
		return forbidden(a)
	}
	return err
}

// asUser checks a call that acts in a computer as a Linux user.
func (g *guard) asUser(ctx context.Context, ref, user string, op operation) error {
	a, _ := holt.ActorOf(ctx)
	if a.Token != "" && !a.Rights.User(user) {
		return forbidden(a)
	}
	return g.computer(ctx, ref, op)
}

// visibleComputers returns the computers that a token covers, or that it covers all of its tenant.
func (g *guard) visibleComputers(ctx context.Context) ([]holt.ComputerID, bool) {
	a, _ := holt.ActorOf(ctx)
	if a.Token == "" || !a.Rights.Narrow() {
		return nil, true
	}
	return a.Rights.Computers, false
}

// workspace checks a call about a whole workspace. ref names the workspace or its computer.
func (g *guard) workspace(ctx context.Context, ref string, op operation) error {
	a, free, err := unrestricted(ctx, op)
	if err != nil || free {
		return err
	}
	if a.Computer != "" || !a.Rights.User("agent") { // agent owns the files of a workspace
		return forbidden(a)
	}
	if !a.Rights.Narrow() {
		return nil
	}
	_, err = g.coveringDir(ctx, a, ref, "/", op)
	return err
}

// files checks a call about one path of a workspace. The context that it returns confines the call to the directory
// that the token covers.
func (g *guard) files(ctx context.Context, ref, path string, op operation) (context.Context, error) {
	a, free, err := unrestricted(ctx, op)
	if err != nil || free {
		return ctx, err
	}
	if a.Computer != "" || !a.Rights.User("agent") {
		return ctx, forbidden(a)
	}
	if !a.Rights.Narrow() {
		return ctx, nil
	}
	dir, err := g.coveringDir(ctx, a, ref, path, op)
	if err == nil && dir != "/" {
		ctx = holt.Beneath(ctx, dir)
	}
	return ctx, err
}

// filesAs is files for a call that makes a file of a Linux user; "": agent.
func (g *guard) filesAs(ctx context.Context, ref, path, user string) (context.Context, error) {
	if a, _ := holt.ActorOf(ctx); a.Token != "" && !a.Rights.User(user) {
		return ctx, forbidden(a)
	}
	return g.files(ctx, ref, path, write)
}

// coveringDir returns the directory of the token's scopes that covers a path of a workspace.
func (g *guard) coveringDir(ctx context.Context, a holt.Actor, ref, path string, op operation) (string, error) {
	ref, _ = holt.CutCheckpoint(ref)
	ws, err := g.n.Workspaces.Get(ctx, ref)
	if holt.CodeOf(err) == holt.NotFound {
		return "", forbidden(a)
	}
	if err != nil {
		return "", err
	}
	if ws.Computer != "" && len(a.Rights.Computers) > 0 {
		if c, err := g.n.Computers.Get(ctx, ws.Computer); err == nil && a.Rights.Computer(c.ID) {
			return "/", nil
		}
	}
	dir, ok := a.Rights.Dir(ws.ID, path, bool(op))
	if !ok {
		return "", forbidden(a)
	}
	return dir, nil
}
