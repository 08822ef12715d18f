package api

import (
	"cmp"
	"reflect"

	"holt"
)

// parsers check path parameters, query parameters of the same names, and fields with such a tag is, before a call is made. The
// function that is bound to an endpoint checks the others.
var parsers = map[string]func(string) error{
	"computer":  ref,
	"workspace": ref,
	"snapshot":  named(id(holt.ParseSnapshotID)),
	"schedule":  named(id(holt.ParseScheduleID)),
	"terminal":  either(id(holt.ParseTerminalID), id(holt.ParseName)),
	"side":      either(named(id(holt.ParseSnapshotID)), ref), // of a comparison of computers and snapshots
	"run":       id(holt.ParseRunID),
	"job":       id(holt.ParseJobID),
	"inputs":    id(holt.ParseJobInputsID),
	"hold":      id(holt.ParseHoldID),
}

func id[T any](parse func(string) (T, error)) func(string) error {
	return func(s string) error { _, err := parse(s); return err }
}

// either returns the error of the last check if all fail.
func either(checks ...func(string) error) func(string) error {
	return func(s string) (err error) {
		for _, check := range checks {
			if err = check(s); err == nil {
				return nil
			}
		}
		return err
	}
}

// parse checks the names in an input. in points to it.
func parse(in any) error { return parseFields(reflect.Indirect(reflect.ValueOf(in))) }

func parseFields(v reflect.Value) error {
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			if err := parseFields(value); err != nil {
				return err
			}
			continue
		}
		name := f.Tag.Get("path")
		if name == "" && !value.IsZero() {
			name = cmp.Or(f.Tag.Get("is"), f.Tag.Get("query"))
		}
		if check := parsers[name]; check != nil && value.Kind() == reflect.String {
			if err := check(value.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// ref checks the name or id of a computer or a workspace.
var ref = either(id(holt.ParseComputerID), id(holt.ParseWorkspaceID), id(holt.ParseName))

// Ref checks the name or id of a computer or a workspace.
func Ref(s string) error { return ref(s) }

// named checks an id, a name, or COMPUTER@NAME.
func named(check func(string) error) func(string) error {
	return func(s string) error {
		one := s
		if computer, at := holt.CutCheckpoint(s); at != "" {
			if err := ref(computer); err != nil {
				return err
			}
			one = at
		}
		return either(check, id(holt.ParseName))(one)
	}
}
