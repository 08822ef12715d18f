package netstack

import (
	"errors"
	"fmt"
	"net/http"

	"holt"
)

// notPermitted is an HTTP reason phrase: most clients show only this for a failed CONNECT.
const notPermitted = "Not allowed by this computer's network policy"

// explainTunnel sends the reason for a refused tunnel to the guest.
func explainTunnel(w http.ResponseWriter, r *http.Request, err error) {
	var refused *refusal
	if !errors.As(err, &refused) && !errors.Is(err, errNotAllowed) {
		explain(w, r, err)
		return
	}
	c, _, broken := http.NewResponseController(w).Hijack()
	if broken != nil {
		explain(w, r, err)
		return
	}
	defer c.Close()
	body := said(err)
	fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		http.StatusForbidden, notPermitted, len(body), body)
}

// said formats an error as the body of a response.
func said(err error) string { return fmt.Sprintf("holt: %s\n", holt.Clip(err.Error(), 600)) }
