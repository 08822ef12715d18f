package netstack

import (
	"errors"
	"fmt"
	"net/http"

	"holt"
)

// notPermitted is a reason phrase: most clients show only that of an answer to CONNECT.
const notPermitted = "Not allowed by this computer's network policy"

// explainTunnel answers a refused CONNECT.
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

// said returns the body of an answer with an error.
func said(err error) string { return fmt.Sprintf("holt: %s\n", holt.Clip(err.Error(), 600)) }
