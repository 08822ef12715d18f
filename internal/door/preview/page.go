package preview

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"strings"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

var pageTemplate = template.Must(template.New("page").Parse(strings.Replace(pageText, "/*style*/", pageStyle, 1)))

// pagePolicy permits only the page's own style.
var pagePolicy = func() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// page is shown to a person instead of the app.
type page struct {
	Status  int
	Title   string
	Lead    string
	Foot    string
	Ports   []portLink
	Refresh int // seconds after which it reloads; 0: never
	Busy    bool
	Request string
}

type portLink struct {
	Port int
	URL  string
}

func (p page) write(w http.ResponseWriter) {
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, p); err != nil {
		panic(err) // template and data are our own
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", pagePolicy)
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(p.Status)
	_, _ = w.Write(b.Bytes()) // the client may have disconnected
}
