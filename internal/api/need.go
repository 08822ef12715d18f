package api

import (
	"reflect"
	"strings"
)

// Need is the right that a call needs.
type Need struct {
	On     On
	Ref    string // field of the input that names the thing, as Computer or Body.Computer; "": the path parameter of its kind
	User   string // field that names a Linux user, as Body.User, =root for that user, or [EveryUser]; "": none is asked for
	Path   string // field that names a path in the workspace
	Change bool   // the call changes something: tokens that are read-only may not make it
	Self   bool   // a computer may make it about itself
}

// EveryUser is the need of calls that are refused to tokens for some Linux users only.
const EveryUser = "=*"

// On is what a right is about.
type On int

// What rights are about.
const (
	Anyone    On = iota + 1 // no right is needed
	Host                    // all tenants: admins only
	Admin                   // what an admin does for one tenant
	Tenant                  // all of a tenant
	Computer                // one computer, by name or id
	Computers               // a list of what belongs to computers: one, or with Ref "" those that the token covers
	Workspace               // one workspace, or one of its checkpoints
	Path                    // one path of a workspace: the call cannot leave what the token covers
	Snapshot                // the computer of a snapshot
	Schedule                // the computer of a schedule, and the user of its command
	Run                     // the computer and the user of a run
	Terminal                // the same of a terminal
	Job                     // a tenant, and the user of the job's command
	Content                 // authz has a rule of its own for this endpoint
)

// field returns the field of a struct value that a dotted name leads to, through embedded structs.
func field(v reflect.Value, name string) reflect.Value {
	for part := range strings.SplitSeq(name, ".") {
		if v = reflect.Indirect(v); v.Kind() != reflect.Struct {
			return reflect.Value{}
		}
		if v = v.FieldByName(part); !v.IsValid() {
			return v
		}
	}
	return v
}

func hasField(t reflect.Type, name string) bool {
	return strings.HasPrefix(name, "=") || field(reflect.New(t), name).IsValid()
}

// Text returns the text of an input's field: what a [Need] names. in points to the input.
func Text(in any, name string) string {
	if fixed, ok := strings.CutPrefix(name, "="); ok {
		return fixed
	}
	if v := field(reflect.ValueOf(in), name); v.IsValid() && v.Kind() == reflect.String {
		return v.String()
	}
	return ""
}
