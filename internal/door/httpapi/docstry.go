package httpapi

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// errorMeanings are the codes as the document and its page tell them; docs/words.md has the same.
var errorMeanings = []struct {
	Code  holt.Code
	Means string
}{
	{holt.InvalidArgument, "the request is invalid, whatever the state"},
	{holt.NotFound, "the object does not exist, or is not visible to the caller"},
	{holt.AlreadyExists, "the name is in use"},
	{holt.Conflict, "the current state does not allow it"},
	{holt.Unauthenticated, "no valid token"},
	{holt.Forbidden, "the token does not allow it"},
	{holt.OutOfSpace, "a disk or a quota is full"},
	{holt.TooMany, "a limit is reached; try again later or ask for less"},
	{holt.Unsupported, "this host or engine does not support it"},
	{holt.Unavailable, "a required part does not answer"},
	{holt.Timeout, "it took longer than allowed"},
	{holt.Corrupt, "stored data is damaged"},
	{holt.Internal, "a bug in holt"},
}

// docsError is one of them on the page.
type docsError struct {
	Code   holt.Code
	Status int
	Means  string
}

func docsErrors() (all []docsError) {
	for _, e := range errorMeanings {
		all = append(all, docsError{e.Code, Status(e.Code), e.Means})
	}
	return all
}

// nameErrors puts the codes into the document, where the type is no more than text.
func nameErrors(doc *huma.OpenAPI) {
	code := doc.Components.Schemas.Map()["Error"].Properties["code"]
	code.Enum = nil
	for _, e := range errorMeanings {
		code.Enum = append(code.Enum, string(e.Code))
	}
}

// tryIt is a line for curl that makes the call; "": curl cannot.
func tryIt(doc *huma.OpenAPI, method, path string, op *huma.Operation) string {
	if op.Responses["101"] != nil {
		return "" // a WebSocket
	}
	query, headers := "", ""
	for _, p := range op.Parameters {
		switch {
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", strings.ToUpper(p.Name))
		case p.Required && p.In == "query" && p.Name == "path":
			query += "&path=/home/agent/FILE"
		case p.Required && p.In == "query":
			query += "&" + p.Name + "=" + strings.ToUpper(p.Name)
		case p.Required && p.In == "header":
			headers += ` -H "` + p.Name + `: 0"`
		}
	}
	if query != "" {
		path += "?" + query[1:]
	}
	line := "curl"
	if op.Responses["200"] != nil && op.Responses["200"].Content["text/event-stream"] != nil {
		line += " -N"
	}
	if method == http.MethodHead {
		line += " -I"
	} else if method != http.MethodGet {
		line += " -X " + method
	}
	line += ` -H "Authorization: Bearer $HOLT_TOKEN"` + headers + ` "$HOLT_URL` + path + `"`
	if op.RequestBody == nil {
		return line
	}
	if media := op.RequestBody.Content["application/json"]; media != nil {
		body, err := json.Marshal(exampleOf(doc, media.Schema, 3))
		if err != nil {
			panic(err) // it is made of our own types
		}
		return line + " \\\n  --json '" + string(body) + "'"
	}
	return line + " \\\n  --data-binary @FILE"
}

// exampleOf is the least that a schema takes.
func exampleOf(doc *huma.OpenAPI, s *huma.Schema, depth int) any {
	if s.Ref != "" {
		s = doc.Components.Schemas.SchemaFromRef(s.Ref)
	}
	switch {
	case s == nil || depth == 0:
		return map[string]any{}
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Type == huma.TypeObject:
		out := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			if slices.Contains(s.Required, name) {
				out[name] = exampleOf(doc, s.Properties[name], depth-1)
			}
		}
		if command := s.Properties["command"]; command != nil && len(out) == 0 && s.Properties["argv"] != nil {
			out["command"] = "echo hello"
		}
		return out
	case s.Type == huma.TypeArray:
		return []any{}
	case s.Type == huma.TypeInteger || s.Type == huma.TypeNumber:
		return 1
	case s.Type == huma.TypeBoolean:
		return true
	}
	return "…"
}
