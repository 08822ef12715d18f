package api

import (
	"reflect"

	"holt"
)

// parsers check path parameters, and query parameters of the same names, before a call is made. Others are checked by whom they
// are for.
var parsers = map[string]func(string) error{
	"computer":  ref,
	"workspace": ref,
	"snapshot":  named(func(s string) error { _, err := holt.ParseSnapshotID(s); return err }),
	"schedule":  named(func(s string) error { _, err := holt.ParseScheduleID(s); return err }),
	"run":       func(s string) error { _, err := holt.ParseRunID(s); return err },
	"job":       func(s string) error { _, err := holt.ParseJobID(s); return err },
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
			name = f.Tag.Get("query")
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
func ref(s string) error {
	if _, err := holt.ParseComputerID(s); err == nil {
		return nil
	}
	if _, err := holt.ParseWorkspaceID(s); err == nil {
		return nil
	}
	_, err := holt.ParseName(s)
	return err
}

// Ref checks the name or id of a computer or a workspace.
func Ref(s string) error { return ref(s) }

// named checks an id, a name, or COMPUTER@NAME.
func named(id func(string) error) func(string) error {
	return func(s string) error {
		one := s
		if computer, at := holt.CutCheckpoint(s); at != "" {
			if err := ref(computer); err != nil {
				return err
			}
			one = at
		}
		if id(one) == nil {
			return nil
		}
		_, err := holt.ParseName(one)
		return err
	}
}
