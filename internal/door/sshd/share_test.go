package sshd

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"holt"
	"holt/internal/access"
)

// robot returns a token of a tenant as a password.
func (o *door) robot(tenant string) ssh.AuthMethod {
	o.t.Helper()
	_, secret, err := o.tokens.CreateFor(o.t.Context(), tenant, "robot", 0)
	if err != nil {
		o.t.Fatal(err)
	}
	return ssh.Password(secret)
}

// fill takes all of a tenant's share of a limit, with as many tokens as needed, after its earlier use has ended.
func (o *door) fill(c *access.Counts, tenant string, all, each int) {
	o.t.Helper()
	had := func() int { return c.Open(" of the tenant " + tenant) }
	for end := time.Now().Add(time.Minute); had() > 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	held := 0
	for i := range all {
		who := &caller{who: tenant + strconv.Itoa(i), how: "token", actor: &holt.Actor{Token: "tok", Tenant: tenant}}
		left, err := c.Enter(who.shares(all, each)...)
		if err != nil {
			break
		}
		o.t.Cleanup(left)
		held++
	}
	if held != all/2 {
		o.t.Fatalf("a tenant has %d of %d", held, all)
	}
}

// comes checks that a client can connect and run a command.
func (o *door) comes(who string, auth ssh.AuthMethod) {
	o.t.Helper()
	banner, c, err := o.tells("einstein", auth)
	if err != nil || banner != "" {
		o.t.Errorf("%s: %q %v", who, banner, err)
		return
	}
	defer c.Close()
	if out, err := runs(o.t, c, "here", ""); out != "here" {
		o.t.Errorf("%s: %q %v", who, out, err)
	}
}

// api connects as the person at the socket, or for a tenant.
func (o *door) api(tenant string) (*ssh.Client, error) {
	nc, err := o.Connect(holt.WithActor(o.t.Context(), holt.Actor{Tenant: tenant}), "einstein")
	if err != nil {
		return nil, err
	}
	sc, chans, reqs, err := ssh.NewClientConn(nc.(pipeEnd), "api", &ssh.ClientConfig{User: "agent", HostKeyCallback: ssh.FixedHostKey(o.hostKey.PublicKey())})
	if err != nil {
		o.t.Fatal(err)
	}
	return ssh.NewClient(sc, chans, reqs), nil
}

// TestConnectionsOfATenant: a tenant has at most half of all connections, with any number of tokens, and gets the reason.
// It affects neither other tenants nor the person, who has a separate limit.
func TestConnectionsOfATenant(t *testing.T) {
	o := openDoor(t)
	heard := make(chan error, 8)
	o.opt.Record = func(ctx context.Context, e Event) {
		if a, _ := holt.ActorOf(ctx); e.What == "connect" && e.Err != nil && a.Tenant == "team-a" {
			heard <- e.Err
		}
	}
	for range mostConns / 2 / mostConnsOf {
		auth := o.robot("team-a")
		for range mostConnsOf {
			if banner, _, err := o.tells("any-name", auth); err != nil || banner != "" {
				t.Fatal(banner, err)
			}
		}
		if banner, _, _ := o.tells("any-name", auth); !strings.Contains(banner, "holt: 64 SSH connections of one caller (") {
			t.Errorf("one token: %q", banner)
		}
	}
	banner, c, err := o.tells("any-name", o.robot("team-a"))
	if err != nil || banner != "holt: 128 SSH connections of the tenant team-a are open already\r\n" {
		t.Fatalf("one more token: %q %v", banner, err)
	}
	_ = c.Wait() // however it was cut
	if err := <-heard; holt.CodeOf(err) != holt.TooMany {
		t.Error("it is recorded as", err)
	}
	o.comes("another tenant", o.robot("team-b"))

	o.fill(&o.conns, "team-b", mostConns, mostConnsOf)
	if banner, _, _ := o.tells("einstein", o.robot("team-c")); banner != "holt: 256 SSH connections are open already\r\n" {
		t.Errorf("a third tenant: %q", banner)
	}
	mine, _ := o.key(t.Context(), holt.SSHKeySpec{})
	o.comes("the person's key", ssh.PublicKeys(mine))
	for i := range mostConnsOf {
		c, err := o.api([]string{"", "team-a"}[i%2])
		if err != nil {
			t.Fatal("the person at the socket:", err)
		}
		defer c.Close()
	}
	if _, err := o.api(""); holt.CodeOf(err) != holt.TooMany || !strings.Contains(err.Error(), "64 SSH connections of one caller (person)") {
		t.Error("the person has no bound:", err)
	}
}

// TestChannelsOfATenant: the same for channels.
func TestChannelsOfATenant(t *testing.T) {
	o := openDoor(t)
	opened := 0
	var err error
	for range 2 * (mostChannels / mostOf) { // two connections of each token, whatever one has is not enough
		auth := o.robot("team-a")
		for range 2 {
			c, dialled := o.dial("einstein", auth)
			if dialled != nil {
				t.Fatal(dialled)
			}
			defer c.Close()
			for err = nil; err == nil; opened++ {
				_, _, err = c.OpenChannel("session", nil)
			}
			opened--
		}
	}
	var refused *ssh.OpenChannelError
	if !errors.As(err, &refused) || refused.Reason != ssh.ResourceShortage || refused.Message != "128 SSH channels of the tenant team-a are open already" || opened != mostChannels/2 {
		t.Errorf("%d are open: %v", opened, err)
	}
	o.comes("another tenant", o.robot("team-b"))
	o.fill(&o.channels, "team-b", mostChannels, mostOf)
	mine, _ := o.key(t.Context(), holt.SSHKeySpec{})
	o.comes("the person's key", ssh.PublicKeys(mine))
	c, err := o.api("")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if out, err := runs(t, c, "here", ""); out != "here" {
		t.Errorf("the person at the socket: %q %v", out, err)
	}
}
