package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"holt"
	"holt/internal/access"
	"holt/internal/door/httpapi/servertest"
)

// ticket makes one over TCP and returns the subprotocols that a browser offers with it.
func ticket(c *caller, spec holt.TicketSpec) []string {
	c.t.Helper()
	body, _ := json.Marshal(spec)
	status, _, text := c.do("POST", "/v1/tickets", string(body))
	var made holt.Ticket
	if err := json.Unmarshal([]byte(text), &made); err != nil || status != 201 || made.Protocol == "" {
		c.t.Fatalf("status %d: %s", status, text)
	}
	return []string{"holt", made.Protocol}
}

// TestTickets: a page, which has no token, opens the WebSocket that a ticket was made for, once; nothing else opens with it.
func TestTickets(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	d := servertest.Serve(t, servertest.Options(t, nouns), "")
	ctx, c := t.Context(), overTCP(t, d)
	if _, err := nouns.Computers.Create(ctx, holt.ComputerSpec{Name: "bell"}, ""); err != nil {
		t.Fatal(err)
	}
	const path = "/v1/computers/bell/terminals/main/attach"
	const command = "?open=true&command=stty+-echo%3B+echo+ready%3B+cat"
	dial := func(path, origin string, offered []string) (*websocket.Conn, int) {
		header := http.Header{}
		if origin != "" {
			header.Set("Origin", origin)
			header.Set("Sec-Fetch-Site", "cross-site")
		}
		if origin == "http://"+d.Addr {
			header.Set("Sec-Fetch-Site", "same-origin")
		}
		conn, resp, err := websocket.Dial(ctx, "ws://"+d.Addr+path, &websocket.DialOptions{HTTPHeader: header, Subprotocols: offered})
		if err != nil {
			return nil, resp.StatusCode
		}
		return conn, resp.StatusCode
	}
	const app = "https://app.example"
	ours := "http://" + d.Addr
	for _, tt := range []struct {
		name         string
		spec         holt.TicketSpec
		path, origin string
		status       int
	}{
		{"a page of ours", holt.TicketSpec{Path: path + command}, path + command, ours, 101},
		{"a program", holt.TicketSpec{Path: path + command}, path + command, "", 101},
		{"the page that was named", holt.TicketSpec{Path: path + command, Origin: app}, path + command, app, 101},
		{"the query in another order", holt.TicketSpec{Path: path + command + "&rows=20&cols=70"}, path + "?cols=70&rows=20&" + command[1:], ours, 101},
		{"a query, where none was named", holt.TicketSpec{Path: path}, path + command, ours, 401},
		{"a parameter more", holt.TicketSpec{Path: path + command}, path + command + "&user=root", ours, 401},
		{"a value more", holt.TicketSpec{Path: path + command}, path + command + "&command=ls", ours, 401},
		{"a query that is none", holt.TicketSpec{Path: path + command}, path + command + "&user=root;x", ours, 401},
		{"another page", holt.TicketSpec{Path: path + command, Origin: app}, path + command, "https://evil.example", 401},
		{"a page of ours, where another was named", holt.TicketSpec{Path: path + command, Origin: app}, path + command, ours, 401},
		{"another page, where none was named", holt.TicketSpec{Path: path + command}, path + command, app, 401},
		{"another path", holt.TicketSpec{Path: path + command}, "/v1/computers/bell/terminals/other/attach" + command, ours, 401},
		{"another query", holt.TicketSpec{Path: path + "?command=ls"}, path + command, ours, 401},
		{"the query left out", holt.TicketSpec{Path: path + "?command=ls"}, path, ours, 401},
	} {
		offered := ticket(c, tt.spec)
		conn, status := dial(tt.path, tt.origin, offered)
		if status != tt.status {
			t.Errorf("%s: status %d, want %d", tt.name, status, tt.status)
		}
		if conn != nil {
			if conn.Subprotocol() != "holt" {
				t.Errorf("%s: subprotocol %q", tt.name, conn.Subprotocol())
			}
			talk(t, ctx, conn)
		}
		if _, status := dial(tt.path, tt.origin, offered); status != 401 {
			t.Errorf("%s, a second time: status %d", tt.name, status)
		}
	}
	if _, status := dial(path, ours, []string{"holt", "holt.ticket.AAAAAAAAAAAAAAAAAAAAAAAAAA"}); status != 401 {
		t.Errorf("a guess: status %d", status)
	}
	// A ticket is for a WebSocket: no other call takes one.
	c.refused(401, holt.Unauthenticated, "GET", "/v1/computers", "", "Authorization: ", "Sec-WebSocket-Protocol: "+strings.Join(ticket(c, holt.TicketSpec{Path: "/v1/computers"}), ","))
	for _, bad := range []string{`{"path":"/v1/../docs"}`, `{"path":"https://evil.example/v1/x"}`, `{"path":"//evil.example/v1/x"}`, `{"path":"docs"}`, `{"path":"/v1/x","origin":"app.example"}`, `{"path":"/v1/x","origin":"https://app.example/"}`, `{"path":"/v1/x#y"}`} {
		c.refused(400, holt.InvalidArgument, "POST", "/v1/tickets", bad)
	}
	c.refused(401, holt.Unauthenticated, "POST", "/v1/tickets", `{"path":"/v1/x"}`, "Authorization: ")
}

// TestTicketsOfOne: a token that makes tickets and redeems none stops nobody else from making some, and itself until some are redeemed.
func TestTicketsOfOne(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(t, servertest.New(t).Nouns()), "")
	c, person := overTCP(t, d), overSocket(t, d)
	var one []string
	for range 100 {
		one = ticket(c, holt.TicketSpec{Path: "/v1/x"})
	}
	c.refused(429, holt.TooMany, "POST", "/v1/tickets", `{"path":"/v1/x"}`)
	ticket(person, holt.TicketSpec{Path: "/v1/x"})
	if _, resp, err := websocket.Dial(t.Context(), "ws://"+d.Addr+"/v1/x", &websocket.DialOptions{Subprotocols: one}); err == nil || resp == nil || resp.StatusCode != 404 {
		t.Errorf("redeemed: %v", err)
	}
	ticket(c, holt.TicketSpec{Path: "/v1/x"})
	c.refused(429, holt.TooMany, "POST", "/v1/tickets", `{"path":"/v1/x"}`)
}

// children knows any number of tokens: TENANT/ID, those of the tenant admins are admins.
type children struct{ servertest.Tokens }

func (children) Check(_ context.Context, secret string) (access.Token, error) {
	tenant, _, _ := strings.Cut(secret, "/")
	return access.Token{ID: holt.TokenID(secret), Tenant: tenant, Rights: holt.Rights{Admin: tenant == "admins"}}, nil
}

// TestTicketsOfChildren: a token that makes others which make tickets stops no other tenant from making some, nor an admin.
func TestTicketsOfChildren(t *testing.T) {
	opt := servertest.Options(t, servertest.New(t).Nouns())
	opt.Tokens = children{}
	c := overTCP(t, servertest.Serve(t, opt, ""))
	make := func(token string) int {
		status, _, _ := c.do("POST", "/v1/tickets", `{"path":"/v1/x"}`, "Authorization: Bearer "+token)
		return status
	}
	for i := range 1000 {
		if status := make(fmt.Sprint("team-a/", i/50)); status != 201 {
			t.Fatalf("the %d.: status %d", i, status)
		}
	}
	c.refused(429, holt.TooMany, "POST", "/v1/tickets", `{"path":"/v1/x"}`, "Authorization: Bearer team-a/another")
	for i := range 1100 {
		if status := make(fmt.Sprint("admins/", i/100)); status != 201 {
			t.Fatalf("the %d. of admins: status %d", i, status)
		}
	}
	if status := make("team-b/1"); status != 201 {
		t.Errorf("another tenant: status %d", status)
	}
}

// TestOpenByAttaching: one URL is a terminal by name: the one that runs, or a new one; whoever was cut off gets no new one.
func TestOpenByAttaching(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	d := servertest.Serve(t, servertest.Options(t, nouns), "")
	ctx, c := t.Context(), overTCP(t, d)
	if _, err := nouns.Computers.Create(ctx, holt.ComputerSpec{Name: "bell"}, ""); err != nil {
		t.Fatal(err)
	}
	attach := func(ctx context.Context, query string) (*websocket.Conn, holt.TerminalEvent) {
		t.Helper()
		conn, _, err := websocket.Dial(ctx, "ws://"+d.Addr+"/v1/computers/bell/terminals/work/attach?"+query, &websocket.DialOptions{HTTPHeader: c.header})
		if err != nil {
			t.Fatal(err)
		}
		_, body, err := conn.Read(ctx)
		var first holt.TerminalEvent
		if err != nil || json.Unmarshal(body, &first) != nil {
			t.Fatalf("%s, %v", body, err)
		}
		return conn, first
	}
	one, first := attach(ctx, "open=true&command=cat&rows=30&cols=100")
	two, second := attach(ctx, "open=true&command=cat")
	defer one.CloseNow()
	defer two.CloseNow()
	if first.Kind != holt.TerminalAttached || first.Terminal.ID != second.Terminal.ID || first.Terminal.Spec.Command != "cat" || first.Terminal.Size.Rows != 30 {
		t.Errorf("%+v and %+v", first.Terminal, second.Terminal)
	}
	if _, err := nouns.Terminals.Close(ctx, "bell", "work", ""); err != nil {
		t.Fatal(err)
	}
	three, again := attach(ctx, "open=true&command=cat&again=true")
	three.CloseNow()
	if again.Terminal.ID != first.Terminal.ID || again.Terminal.State == holt.TerminalRunning {
		t.Errorf("after it was closed, again: %+v", again.Terminal)
	}
	four, fresh := attach(ctx, "open=true&command=cat")
	four.CloseNow()
	if fresh.Terminal.ID == first.Terminal.ID {
		t.Error("a terminal that has ended was opened")
	}
	c.refused(400, holt.InvalidArgument, "GET", "/v1/computers/bell/terminals/"+string(first.Terminal.ID)+"/attach?open=true", "", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
}
