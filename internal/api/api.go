// Package api is the table of what holt's API has. An endpoint is a value: its method and path, its input and its answer, the
// right that it needs, how the audit log has it, and its description. The HTTP server binds endpoints to functions, the client
// calls them, authz reads what they need, and the OpenAPI document and the audit log take their names from here.
//
// An input is a struct. Fields tagged path, query or header are parameters, the field Body is sent as JSON, and embedded structs
// share what several inputs have. The tags doc, default, minimum, maximum, maxLength, pattern, enum and required bound and
// describe a field; the HTTP server checks them (github.com/danielgtaylor/huma, which also writes the OpenAPI document).
//
// To add an endpoint: declare it here, bind it in the HTTP server, give the client a method. An endpoint without a need, or whose
// need names a field that its input does not have, fails when the program starts.
package api

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"holt"
)

// Endpoint is one call of the API, without its types.
type Endpoint struct {
	Method string
	Path   string // with {name} for each path parameter
	ID     string // operationId
	Tag    string // the group that it is shown in
	Title  string
	Doc    string
	Status int // of an answer that is no error; 0: 200, or 204 where there is no answer
	Need   Need
	Audit  Audit

	Takes  string         // describes a body that is not JSON; "": there is none
	Types  []string       // media types of that body; nil: application/octet-stream
	Answer Answer         // that is not JSON
	Also   map[int]string // describes other answers by their status

	Input reflect.Type              // struct
	owner func(any) holt.ComputerID // of an item of a list, or of the answer; nil: it belongs to no computer
	user  func(any) string          // likewise the Linux user; nil: it belongs to none
}

// Answer describes an answer that is a stream.
type Answer struct {
	Status int
	Type   string       // of the content
	Doc    string       // what it is
	Of     reflect.Type // of its messages or events; nil: they are bytes
}

// Call is an endpoint that takes an In and answers with an Out.
type Call[In, Out any] struct{ *Endpoint }

// List is an endpoint that answers with items, which the HTTP server cuts into pages. In has [Paging].
type List[In, Item any] struct {
	*Endpoint
	Key func(Item) string // what the items are sorted by; no two have the same
}

// None is the answer of calls that have none.
type None struct{}

// Stream is the answer of calls that are answered by hand: bytes, events, or a WebSocket. [Answer] describes it.
type Stream struct{}

// Keyed is the part of an input that makes repeating a call safe.
type Keyed struct {
	Key string `header:"Idempotency-Key" maxLength:"128" doc:"any unique text: a repeated call with the same key and arguments does nothing more and gets the first answer"`
}

// Paging is the part of an input that asks for a page of a list.
type Paging struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"most items in one answer"`
	Cursor string `query:"cursor" maxLength:"16400" doc:"next of the previous page"`
}

// PagingOf returns the paging of an input that has it. in points to the input.
func PagingOf(in any) Paging {
	if p, ok := in.(*Paging); ok {
		return *p
	}
	if v := field(reflect.ValueOf(in), "Paging"); v.IsValid() {
		return v.Interface().(Paging)
	}
	return Paging{}
}

// Body is the input of a call that only has a body, and may be repeated.
type Body[T any] struct {
	Keyed
	Body T
}

// Audit says which calls of an endpoint the audit log has. Every refusal is in it.
type Audit int

// What the audit log has.
const (
	AuditChanges Audit = iota // calls that are not GET or HEAD
	AuditAll                  // all calls
	AuditStart                // all calls, with an entry at their start as well, since they may take days
)

// Option changes an endpoint while it is declared.
type Option func(*Endpoint)

// Doc describes an endpoint beyond its title.
func Doc(text string) Option { return func(e *Endpoint) { e.Doc = text } }

// Status is the HTTP status of an answer that is no error.
func Status(code int) Option { return func(e *Endpoint) { e.Status = code } }

// Tag is the group of an endpoint; without it, that is the first word of its path.
func Tag(name string) Option { return func(e *Endpoint) { e.Tag = name } }

// Audited says which of its calls the audit log has.
func Audited(a Audit) Option { return func(e *Endpoint) { e.Audit = a } }

// Created is the status of calls that make something.
var Created = Status(http.StatusCreated)

// Owner returns the computer of an item of a list, or of the answer of a call. Callers who may not see that computer do not get it.
func Owner[T any](of func(T) holt.ComputerID) Option {
	return func(e *Endpoint) { e.owner = func(item any) holt.ComputerID { return of(item.(T)) } }
}

// As returns the Linux user of an item of a list, or of the answer of a call. Callers who may not act as that user do not get it.
func As[T any](of func(T) string) Option {
	return func(e *Endpoint) { e.user = func(item any) string { return of(item.(T)) } }
}

// Takes describes the body of a call, which is not JSON. Without types it is application/octet-stream.
func Takes(doc string, types ...string) Option {
	return func(e *Endpoint) { e.Takes, e.Types = doc, types }
}

// Also describes another answer of a call.
func Also(status int, doc string) Option {
	return func(e *Endpoint) {
		if e.Also == nil {
			e.Also = map[int]string{}
		}
		e.Also[status] = doc
	}
}

// Bytes is the answer of a call that streams bytes of a media type.
func Bytes(mediaType, doc string) Option {
	return func(e *Endpoint) { e.Answer = Answer{Status: http.StatusOK, Type: mediaType, Doc: doc} }
}

// Lines is the answer of a call that streams JSON, one T a line.
func Lines[T any](doc string) Option {
	return func(e *Endpoint) {
		e.Answer = Answer{http.StatusOK, "application/x-ndjson", doc, reflect.TypeFor[T]()}
	}
}

// Events is the answer of a call that streams server-sent events, each of which is a T.
func Events[T any]() Option {
	return func(e *Endpoint) {
		e.Answer = Answer{http.StatusOK, "text/event-stream", "events", reflect.TypeFor[T]()}
	}
}

// WebSocket is the answer of a call that becomes one. T is its text messages.
func WebSocket[T any]() Option {
	return func(e *Endpoint) {
		e.Answer = Answer{http.StatusSwitchingProtocols, "application/json", "the WebSocket", reflect.TypeFor[T]()}
	}
}

// Get declares an endpoint that changes nothing.
func Get[In, Out any](path, id, title string, need Need, options ...Option) Call[In, Out] {
	return Call[In, Out]{declare[In](http.MethodGet, path, id, title, need, options)}
}

// Post declares an endpoint with that method; so do Put, Patch and Delete.
func Post[In, Out any](path, id, title string, need Need, options ...Option) Call[In, Out] {
	return Call[In, Out]{declare[In](http.MethodPost, path, id, title, need, options)}
}

// Head is [Post] with another method.
func Head[In, Out any](path, id, title string, need Need, options ...Option) Call[In, Out] {
	return Call[In, Out]{declare[In](http.MethodHead, path, id, title, need, options)}
}

// Put is [Post] with another method.
func Put[In, Out any](path, id, title string, need Need, options ...Option) Call[In, Out] {
	return Call[In, Out]{declare[In](http.MethodPut, path, id, title, need, options)}
}

// Patch is [Post] with another method.
func Patch[In, Out any](path, id, title string, need Need, options ...Option) Call[In, Out] {
	return Call[In, Out]{declare[In](http.MethodPatch, path, id, title, need, options)}
}

// Delete is [Post] with another method.
func Delete[In, Out any](path, id, title string, need Need, options ...Option) Call[In, Out] {
	return Call[In, Out]{declare[In](http.MethodDelete, path, id, title, need, options)}
}

// GetList declares an endpoint that lists items, in the order of key.
func GetList[In, Item any](path, id, title string, need Need, key func(Item) string, options ...Option) List[In, Item] {
	return List[In, Item]{declare[In](http.MethodGet, path, id, title, need, options), key}
}

var all []*Endpoint

// All returns every endpoint, in the order of their declarations.
func All() []*Endpoint { return all }

// declare panics on what only a mistake in this package can cause.
func declare[In any](method, path, id, title string, need Need, options []Option) *Endpoint {
	e := &Endpoint{Method: method, Path: path, ID: id, Title: title, Need: need, Input: reflect.TypeFor[In]()}
	_, e.Tag, _ = strings.Cut(strings.TrimPrefix(path, "/"), "/")
	e.Tag, _, _ = strings.Cut(e.Tag, "/")
	for _, o := range options {
		o(e)
	}
	if need.On == 0 {
		panic(fmt.Sprintf("endpoint %s needs no right: say Anyone if that is so", id))
	}
	for _, name := range []string{need.Ref, need.User, need.Path} {
		if name != "" && !hasField(e.Input, name) {
			panic(fmt.Sprintf("endpoint %s: its input has no field %s", id, name))
		}
	}
	all = append(all, e)
	return e
}

// OwnerOf returns the computer of an item of the endpoint's list, or of its answer. ok is false if items belong to no computer.
func (e *Endpoint) OwnerOf(item any) (id holt.ComputerID, ok bool) {
	if e.owner == nil {
		return "", false
	}
	return e.owner(item), true
}

// UserOf returns the Linux user of an item. ok is false if items belong to none.
func (e *Endpoint) UserOf(item any) (name string, ok bool) {
	if e.user == nil {
		return "", false
	}
	return e.user(item), true
}
