package api

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
)

// Request is an input as it goes over the wire.
type Request struct {
	Path   string // escaped
	Query  url.Values
	Header http.Header
	Body   any // sent as JSON; nil: none
}

// Keyed reports whether the endpoint's calls may have an idempotency key.
func (e *Endpoint) Keyed() bool {
	return e.Input == reflect.TypeFor[Keyed]() || hasField(e.Input, "Keyed")
}

// Encode makes a request of an input. Parameters without a value are left out, except for false where the default is true.
func (e *Endpoint) Encode(in any) Request {
	r := Request{Path: e.Path, Query: url.Values{}, Header: http.Header{}}
	r.add(reflect.Indirect(reflect.ValueOf(in)))
	return r
}

func (r *Request) add(v reflect.Value) {
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("query"), ",")
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			r.add(value)
		case f.Name == "Body":
			if value.Kind() != reflect.Pointer || !value.IsNil() {
				r.Body = value.Interface()
			}
		case f.Tag.Get("of") != "":
			r.Path = strings.Replace(r.Path, "{"+f.Tag.Get("of")+"}", url.PathEscape(value.String()), 1)
		case f.Tag.Get("path") != "":
			r.Path = strings.Replace(r.Path, "{"+f.Tag.Get("path")+"}", url.PathEscape(text(value)), 1)
		case option == "explode":
			for n := range value.Len() {
				r.Query.Add(name, text(value.Index(n)))
			}
		case name != "" && (!value.IsZero() || f.Tag.Get("default") == "true"):
			r.Query.Set(name, text(value))
		case f.Tag.Get("header") != "" && !value.IsZero():
			r.Header.Set(f.Tag.Get("header"), text(value))
		}
	}
}

// text is a parameter as text; several of one are joined by commas.
func text(v reflect.Value) string {
	if v.Kind() != reflect.Slice {
		return fmt.Sprint(v.Interface())
	}
	all := make([]string, v.Len())
	for i := range all {
		all[i] = fmt.Sprint(v.Index(i).Interface())
	}
	return strings.Join(all, ",")
}
