package httpapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

//go:embed docs.html
var docsHTML string

// docsScript finds calls on the page; it is the only script that may run there.
//
//go:embed docs.js
var docsScript string

// docsPolicy is the page's Content-Security-Policy: nothing but what is in it.
var docsPolicy = func() string {
	sum := sha256.Sum256([]byte(docsScript))
	return "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// docsPage renders the OpenAPI document as one page that loads nothing.
func docsPage(doc *huma.OpenAPI) []byte {
	page := struct {
		Title, Version, Description string
		Tags                        []docsTag
		Schemas                     []docsSchema
		Errors                      []docsError
		Script                      template.JS
	}{Errors: docsErrors(), Script: template.JS(docsScript), Title: doc.Info.Title, Version: doc.Info.Version, Description: doc.Info.Description}
	page.Tags = docsTags(doc)
	schemas := doc.Components.Schemas.Map()
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		page.Schemas = append(page.Schemas, docsSchema{name, docsFields(schemas[name])})
	}
	var out bytes.Buffer
	if err := template.Must(template.New("docs").Parse(docsHTML)).Execute(&out, page); err != nil {
		panic(err) // the page is made of our own types
	}
	return out.Bytes()
}

type docsTag struct {
	Name       string
	Operations []docsOperation
}

type docsOperation struct {
	Method, Path, ID, Summary, Description string
	Try                                    string // a line for curl
	Params                                 []docsField
	Bodies                                 []docsContent
	Answers                                []docsContent
}

// docsContent is a body one way or the other.
type docsContent struct{ Status, Media, Type, Link, Doc string }

type docsField struct {
	Name, In, Type, Link, Doc string
	Required                  bool
}

type docsSchema struct {
	Name   string
	Fields []docsField
}

func docsTags(doc *huma.OpenAPI) []docsTag {
	byTag := map[string][]docsOperation{}
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		item := doc.Paths[path]
		for _, m := range []struct {
			method string
			op     *huma.Operation
		}{
			{http.MethodGet, item.Get}, {http.MethodPost, item.Post}, {http.MethodPut, item.Put}, {http.MethodPatch, item.Patch}, {http.MethodDelete, item.Delete}, {http.MethodHead, item.Head},
		} {
			if m.op != nil {
				tag := m.op.Tags[0]
				d := docsOf(m.method, path, m.op)
				d.Try = tryIt(doc, m.method, path, m.op)
				byTag[tag] = append(byTag[tag], d)
			}
		}
	}
	var tags []docsTag
	for _, name := range slices.Sorted(maps.Keys(byTag)) {
		tags = append(tags, docsTag{name, byTag[name]})
	}
	return tags
}

func docsOf(method, path string, op *huma.Operation) docsOperation {
	d := docsOperation{Method: method, Path: path, ID: op.OperationID, Summary: op.Summary, Description: op.Description}
	for _, p := range op.Parameters {
		typ, link := docsType(p.Schema)
		d.Params = append(d.Params, docsField{p.Name, p.In, typ, link, p.Description, p.Required})
	}
	if op.RequestBody != nil {
		d.Bodies = docsContents("", op.RequestBody.Description, op.RequestBody.Content)
	}
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		r := op.Responses[status]
		if len(r.Content) == 0 {
			d.Answers = append(d.Answers, docsContent{Status: status, Doc: r.Description})
		}
		d.Answers = append(d.Answers, docsContents(status, r.Description, r.Content)...)
	}
	return d
}

func docsContents(status, doc string, content map[string]*huma.MediaType) []docsContent {
	var out []docsContent
	for _, media := range slices.Sorted(maps.Keys(content)) {
		c := docsContent{Status: status, Media: media, Doc: doc}
		if content[media].Schema != nil {
			c.Type, c.Link = docsType(content[media].Schema)
		}
		out = append(out, c)
	}
	return out
}

func docsFields(s *huma.Schema) []docsField {
	var out []docsField
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		typ, link := docsType(p)
		out = append(out, docsField{name, "", typ, link, p.Description, slices.Contains(s.Required, name)})
	}
	return out
}

// docsType says in a word what a schema allows, and which schema tells more.
func docsType(s *huma.Schema) (typ, link string) {
	if s == nil {
		return "", ""
	}
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		return name, name
	}
	if s.Type == huma.TypeArray && s.Items != nil {
		typ, link = docsType(s.Items)
		return "list of " + typ, link
	}
	typ = s.Type
	if typ == "" {
		typ = "any"
	}
	if s.Format != "" {
		typ += " (" + s.Format + ")"
	}
	if len(s.Enum) > 0 {
		var words []string
		for _, e := range s.Enum {
			if w, ok := e.(string); ok {
				words = append(words, w)
			}
		}
		typ = strings.Join(words, " | ")
	}
	return typ, ""
}
