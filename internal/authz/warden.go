// Package authz asks of every call, once, whether its actor may make it. It stands around the nouns that
// all doors call ([Around]): HTTP, SSH and previews cannot forget it, since there is no other way in.
//
// It is not who says whose things are: to which tenant a computer belongs the nouns' own look-ups ask (see
// [holt.Confined]), so that another tenant's is not found by the same words and in the same time as one that
// does not exist. Nor does it know tokens, only the rights of an actor ([holt.Rights]).
//
// What it decides, in this order:
//
//   - Whoever is no token (a person at the daemon's socket, the daemon itself) may do everything; a computer
//     that speaks of itself may do a few things to itself.
//   - What is the host's (its directories, its archive, its health, its end, limits, boots of images) is
//     for admins.
//   - A token without scopes may do everything in its tenant.
//   - One that is read-only changes nothing; one for a Linux user is no other in a computer; one for
//     computers, workspaces or ports reaches these, and lists show nothing else.
//
// What a token does not cover is Forbidden in the same words whether it exists or not.
//
// Every type here has every method of its noun written out: a method that is added to a noun does not
// compile here until somebody has decided. A noun that is added to [nouns.Set] fails TestNounsAreGuarded.
//
// Trap: names stand for things only at the moment of the look-up. What a scope is held against is the id.
package authz

import (
	"context"

	"holt"
	"holt/internal/nouns"
)

type warden struct{ n nouns.Set }

// use says what a call does to what it is about.
type use bool

const (
	look   use = false
	change use = true
)

// denied is what every call gets that is not covered, of what there is and of what there is not.
func denied(a holt.Actor) error {
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
	return e.WithHint("it is for the tenant %s, and not for what is the host's; that takes the scope admin", a.Tenant)
}

// admin is asked by what is the host's.
func (w *warden) admin(ctx context.Context) error {
	if a, _ := holt.ActorOf(ctx); !a.Admin() {
		return denied(a)
	}
	return nil
}

// host is admin of what is about all tenants: the context that it returns sees them.
func (w *warden) host(ctx context.Context) (context.Context, error) {
	if err := w.admin(ctx); err != nil {
		return ctx, err
	}
	a, _ := holt.ActorOf(ctx)
	a.Tenant = ""
	return holt.WithActor(ctx, a), nil
}

// free returns who calls, and whether there is nothing more to ask: it may do everything in its tenant.
func free(ctx context.Context, u use) (a holt.Actor, free bool, err error) {
	a, credential := holt.ActorOf(ctx)
	switch {
	case !credential, a.Schedule != "":
		return a, true, nil
	case a.Computer != "":
		return a, false, nil
	case u == change && a.Rights.ReadOnly:
		return a, false, denied(a)
	}
	return a, !a.Rights.Narrow() && len(a.Rights.Users) == 0, nil
}

// tenant is asked by what is about a whole tenant, such as what makes something in it.
func (w *warden) tenant(ctx context.Context, u use) error {
	a, free, err := free(ctx, u)
	if err == nil && !free && (a.Computer != "" || a.Rights.Narrow()) {
		err = denied(a)
	}
	return err
}

// computer is asked by what is about one computer. self says whether it may do that to itself.
func (w *warden) computer(ctx context.Context, ref string, u use) error {
	a, free, err := free(ctx, u)
	if err != nil || free {
		return err
	}
	if a.Computer != "" {
		return denied(a)
	}
	return w.covers(ctx, a, ref)
}

// self is computer for what a computer may do to itself, too.
func (w *warden) self(ctx context.Context, ref string, u use) error {
	if a, _ := holt.ActorOf(ctx); a.Computer != "" {
		if ref != string(a.Computer) {
			return denied(a)
		}
		return nil
	}
	return w.computer(ctx, ref, u)
}

// covers says whether a token covers the whole of a computer.
func (w *warden) covers(ctx context.Context, a holt.Actor, ref string) error {
	if !a.Rights.Narrow() {
		return nil
	}
	if len(a.Rights.Computers) == 0 {
		return denied(a)
	}
	c, err := w.n.Computers.Get(ctx, ref)
	if holt.CodeOf(err) == holt.NotFound || err == nil && !a.Rights.Computer(c.ID) {
		return denied(a)
	}
	return err
}

// inside is computer for what goes on in it as a Linux user.
func (w *warden) inside(ctx context.Context, ref, user string, u use) error {
	a, _ := holt.ActorOf(ctx)
	if a.Token != "" && !a.Rights.User(user) {
		return denied(a)
	}
	return w.computer(ctx, ref, u)
}

// seen returns which of the computers there are a token covers: nil, all of its tenant.
func (w *warden) seen(ctx context.Context) ([]holt.ComputerID, bool) {
	a, _ := holt.ActorOf(ctx)
	if a.Token == "" || !a.Rights.Narrow() {
		return nil, true
	}
	return a.Rights.Computers, false
}

// workspace is asked by what is about all of a workspace: one that is named, or that of a computer that is.
func (w *warden) workspace(ctx context.Context, ref string, u use) error {
	a, free, err := free(ctx, u)
	if err != nil || free {
		return err
	}
	if a.Computer != "" || !a.Rights.User("agent") { // whose the files of a workspace are
		return denied(a)
	}
	if !a.Rights.Narrow() {
		return nil
	}
	_, err = w.dir(ctx, a, ref, "/", u)
	return err
}

// files is asked by what is about one path of a workspace. The context that it returns cannot leave what is covered.
func (w *warden) files(ctx context.Context, ref, path string, u use) (context.Context, error) {
	a, free, err := free(ctx, u)
	if err != nil || free {
		return ctx, err
	}
	if a.Computer != "" || !a.Rights.User("agent") {
		return ctx, denied(a)
	}
	if !a.Rights.Narrow() {
		return ctx, nil
	}
	dir, err := w.dir(ctx, a, ref, path, u)
	if err == nil && dir != "/" {
		ctx = holt.Beneath(ctx, dir)
	}
	return ctx, err
}

// owned is files for what gets an owner; "": agent.
func (w *warden) owned(ctx context.Context, ref, path, user string) (context.Context, error) {
	if a, _ := holt.ActorOf(ctx); a.Token != "" && !a.Rights.User(user) {
		return ctx, denied(a)
	}
	return w.files(ctx, ref, path, change)
}

// dir returns the directory that covers a path of a workspace.
func (w *warden) dir(ctx context.Context, a holt.Actor, ref, path string, u use) (string, error) {
	ref, _ = holt.CutCheckpoint(ref)
	ws, err := w.n.Workspaces.Get(ctx, ref)
	if holt.CodeOf(err) == holt.NotFound {
		return "", denied(a)
	}
	if err != nil {
		return "", err
	}
	if ws.Computer != "" && len(a.Rights.Computers) > 0 {
		if c, err := w.n.Computers.Get(ctx, ws.Computer); err == nil && a.Rights.Computer(c.ID) {
			return "/", nil
		}
	}
	dir, ok := a.Rights.Dir(ws.ID, path, bool(u))
	if !ok {
		return "", denied(a)
	}
	return dir, nil
}
