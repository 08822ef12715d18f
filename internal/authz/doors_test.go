package authz_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"holt"
	"holt/internal/api"
	"holt/internal/authz"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/door/sshd"
	"holt/internal/event"
	"holt/internal/nouns"
)

// reached returns errReached from each call that passes the checks.
type reached struct{ nouns.Computers }

var errReached = errors.New("the call passed the check")

func (reached) Open(context.Context, string, holt.SessionSpec, string) (holt.Session, error) {
	return nil, errReached
}
func (reached) Dial(context.Context, string, holt.SessionAddress, string) (holt.PortConn, error) {
	return nil, errReached
}
func (reached) Listen(context.Context, string, holt.SessionAddress, string) (holt.SessionListener, error) {
	return nil, errReached
}

// limited returns a context of a token with scopes.
func limited(t *testing.T, scopes ...holt.Scope) context.Context {
	t.Helper()
	rights, err := holt.ParseScopes(scopes)
	if err != nil {
		t.Fatal(err)
	}
	return holt.WithActor(t.Context(), holt.Actor{Token: holt.NewTokenID(), Tenant: holt.DefaultTenant, Rights: rights})
}

// TestSessionsAreChecked: over SSH a token has the rights that it has for runs and connections, and acts as no other
// Linux user.
func TestSessionsAreChecked(t *testing.T) {
	all := servertest.New(t).Nouns().Computers
	c, err := all.Create(t.Context(), holt.ComputerSpec{Name: "einstein"}, "")
	if err != nil {
		t.Fatal(err)
	}
	gate := authz.Sessions(all, reached{all})
	if of := reflect.TypeOf(gate); of.PkgPath() != "holt/internal/authz" || slices.ContainsFunc(reflect.VisibleFields(of), func(f reflect.StructField) bool { return f.Anonymous }) {
		t.Errorf("%s has methods without a check", of)
	}
	on := holt.Scope("computer:" + string(c.ID))
	port := holt.Scope("port:" + string(c.ID) + ":80")
	tries := map[string]func(ctx context.Context, ref string) error{
		"agent": func(ctx context.Context, ref string) error {
			_, err := gate.Open(ctx, ref, holt.SessionSpec{User: "agent"}, "")
			return err
		},
		"root": func(ctx context.Context, ref string) error {
			_, err := gate.Open(ctx, ref, holt.SessionSpec{User: "root"}, "")
			return err
		},
		"uid 0": func(ctx context.Context, ref string) error {
			_, err := gate.Open(ctx, ref, holt.SessionSpec{User: "0"}, "")
			return err
		},
		"port":    dial(gate, holt.SessionAddress{Host: "localhost", Port: 80, User: "agent"}),
		"port 81": dial(gate, holt.SessionAddress{Host: "127.0.0.1", Port: 81, User: "agent"}),
		"away":    dial(gate, holt.SessionAddress{Host: "192.0.2.7", Port: 80, User: "agent"}),
		"socket":  dial(gate, holt.SessionAddress{Socket: "/run/docker.sock", User: "agent"}),
		"listen": func(ctx context.Context, ref string) error {
			_, err := gate.Listen(ctx, ref, holt.SessionAddress{Host: "localhost", Port: 80, User: "agent"}, "")
			return err
		},
		"as root": func(ctx context.Context, ref string) error {
			_, err := gate.Listen(ctx, ref, holt.SessionAddress{Socket: "/run/x", User: "root"}, "")
			return err
		},
	}
	everything := "agent root uid 0 port port 81 away socket listen as root"
	for _, who := range []struct {
		name string
		ctx  context.Context
		may  string // names of tries
	}{
		{"the person", t.Context(), everything},
		{"a tenant's", limited(t), everything},
		{"read-only", limited(t, "read-only"), ""},
		{"user:agent", limited(t, "user:agent"), "agent port port 81 away socket listen"},
		{"user:root", limited(t, "user:root"), "root as root"},
		{"computer", limited(t, on), everything},
		{"computer, as agent", limited(t, on, "user:agent"), "agent port port 81 away socket listen"},
		{"another computer", limited(t, holt.Scope("computer:"+string(holt.NewComputerID()))), ""},
		{"port", limited(t, port), "port"},
		{"port, as root", limited(t, port, "user:root"), ""},
		{"port, read-only", limited(t, port, "read-only"), ""},
		{"workspace", limited(t, holt.Scope("workspace:"+string(holt.NewWorkspaceID()))), ""},
		{"the computer itself", holt.WithActor(t.Context(), holt.Actor{Computer: c.ID, Tenant: holt.DefaultTenant}), ""},
	} {
		left := " " + who.may + " "
		names := []string{"uid 0", "port 81", "as root", "agent", "root", "port", "away", "socket", "listen"} // the longer of two that begin alike first
		for _, name := range names {
			may := strings.Contains(left, " "+name+" ")
			left = strings.Replace(left, " "+name+" ", "  ", 1)
			for _, ref := range []string{"einstein", string(c.ID)} {
				err := tries[name](who.ctx, ref)
				if may && !errors.Is(err, errReached) || !may && holt.CodeOf(err) != holt.Forbidden {
					t.Errorf("%s, %s of %s: %v", who.name, name, ref, err)
				}
			}
		}
	}
	if _, err := gate.Get(limited(t, port), "einstein"); err != nil {
		t.Error("a token for a port does not see its computer:", err)
	}
	if err := authz.Port(all)(limited(t, port), c.ID, 80); err != nil {
		t.Error(err)
	}
	for _, ctx := range []context.Context{limited(t, "read-only"), limited(t, holt.Scope("port:"+string(c.ID)+":81"))} {
		if err := authz.Port(all)(ctx, c.ID, 80); holt.CodeOf(err) != holt.Forbidden {
			t.Error(err)
		}
	}
}

func dial(gate sshd.Computers, to holt.SessionAddress) func(context.Context, string) error {
	return func(ctx context.Context, ref string) error { _, err := gate.Dial(ctx, ref, to, ""); return err }
}

// TestEventsAreFiltered: a token sees the events of objects that it covers.
func TestEventsAreFiltered(t *testing.T) {
	var feed event.Feed
	mine, other := holt.NewComputerID(), holt.NewComputerID()
	space := holt.NewWorkspaceID()
	for _, e := range []holt.Event{
		{Kind: holt.EventComputerState, Name: "computer", Computer: mine}, {Kind: holt.EventRunEnded, Name: "run", Computer: mine}, {Kind: holt.EventTerminalOpened, Name: "terminal", Computer: mine},
		{Kind: holt.EventSnapshotCreated, Name: "snapshot", Computer: mine}, {Kind: holt.EventScheduleChanged, Name: "schedule", Computer: mine}, {Kind: holt.EventFiringState, Name: "firing", Computer: mine},
		{Kind: holt.EventCheckpointCreated, Name: "checkpoint", Computer: mine, Ref: string(space)}, {Kind: holt.EventWorkspaceChanged, Name: "workspace", Ref: string(space)},
		{Kind: holt.EventJobState, Name: "job", Computer: mine}, {Kind: holt.EventComputerState, Name: "other", Computer: other}, {Kind: holt.EventWorkspaceDeleted, Name: "space", Ref: string(holt.NewWorkspaceID())},
	} {
		e.Tenant = holt.DefaultTenant
		feed.Add(e)
	}
	asked := authz.New(nouns.Set{})
	for _, who := range []struct {
		name string
		ctx  context.Context
		sees string
	}{
		{"a tenant's", limited(t), "computer run terminal snapshot schedule firing checkpoint workspace job other space"},
		{"read-only", limited(t, "read-only"), "computer run terminal snapshot schedule firing checkpoint workspace job other space"},
		{"user:agent", limited(t, "user:agent"), "computer snapshot checkpoint workspace other space"},
		{"user:root", limited(t, "user:root"), "computer snapshot other"},
		{"computer", limited(t, holt.Scope("computer:"+string(mine))), "computer run terminal snapshot schedule firing checkpoint"},
		{"computer, as root", limited(t, holt.Scope("computer:"+string(mine)), "user:root"), "computer snapshot"},
		{"workspace", limited(t, holt.Scope("workspace:"+string(space)+":read:/reports")), "checkpoint workspace"},
		{"port", limited(t, holt.Scope("port:"+string(mine)+":80")), ""},
	} {
		var got []string
		first := holt.EventKind("")
		err := feed.Follow(who.ctx, holt.EventQuery{}, func(e holt.Event) error {
			if asked.Seen(who.ctx, api.FollowEvents.Endpoint, e) != nil {
				return nil
			}
			if first == "" {
				first = e.Kind
			} else {
				got = append(got, e.Name)
			}
			return nil
		})
		if err != nil || first != holt.EventReady || strings.Join(got, " ") != who.sees {
			t.Errorf("%s sees %q behind %q: %v", who.name, got, first, err)
		}
	}
	_, err := asked.Check(holt.WithActor(t.Context(), holt.Actor{Computer: mine}), api.FollowEvents.Endpoint, &api.EventsOf{})
	if holt.CodeOf(err) != holt.Forbidden {
		t.Error("a computer of itself:", err)
	}
}
