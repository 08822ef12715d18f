package api

import (
	"cmp"
	"path"
	"reflect"
	"strings"
	"unicode"

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
	"upload":    id(holt.ParseUploadID),
	"artifact":  either(id(holt.ParseArtifactID), id(parseArtifact)),
	"bucket":    id(holt.ParseName),
	"link":      id(holt.ParseArtifactLinkID),
	"token":     token,
	"point":     func(s string) error { s, _ = holt.CutCheckpoint(s); return ref(s) }, // a workspace, or WORKSPACE@CHECKPOINT
}

func id[T any](parse func(string) (T, error)) func(string) error {
	return func(s string) error { _, err := parse(s); return err }
}

// parseArtifact returns BUCKET/NAME, or InvalidArgument.
func parseArtifact(s string) (string, error) {
	bucket, name, ok := holt.CutArtifact(s)
	if !ok {
		return s, holt.Errorf(holt.InvalidArgument, "invalid artifact %q", holt.Clip(s, 80)).WithHint("give its id, or BUCKET/NAME")
	}
	if _, err := holt.ParseName(bucket); err != nil {
		return s, err
	}
	return holt.ParseArtifactName(name)
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

// parse checks the names in an input, and cleans its paths. in points to it. An input with a method Parse has more to check.
func parse(in any) error {
	if err := parseFields(reflect.Indirect(reflect.ValueOf(in))); err != nil {
		return err
	}
	if p, ok := in.(interface{ Parse() error }); ok {
		return p.Parse()
	}
	return nil
}

func parseFields(v reflect.Value) error {
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		if owner, ok := value.Interface().(FileOwner); ok {
			if err := owner.parse(); err != nil {
				return err
			}
		}
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			if err := parseFields(value); err != nil {
				return err
			}
			continue
		}
		given, _, _ := strings.Cut(f.Tag.Get("query"), ",")
		name := cmp.Or(f.Tag.Get("is"), f.Tag.Get("path"), given)
		if f.Tag.Get("path") == "" && f.Tag.Get("required") == "" && value.IsZero() {
			continue
		}
		if name == "path" || name == "dir" {
			if err := cleanPaths(value); err != nil {
				return err
			}
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

// token checks the name or id of a token. A secret that is given by mistake appears in no error and no log.
func token(s string) error {
	if strings.HasPrefix(s, "holt_") {
		return holt.Errorf(holt.InvalidArgument, "this is the secret of a token, not its id or name").WithHint("holt token list shows ids; revoke the token if others may have seen its secret")
	}
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return holt.Errorf(holt.InvalidArgument, "invalid name of a token").WithHint("a name is 1 to 128 printable characters")
	}
	return nil
}

// CleanPath returns the shortest form of an absolute path.
func CleanPath(p string) (string, error) {
	switch {
	case !strings.HasPrefix(p, "/"):
		return "", holt.Errorf(holt.InvalidArgument, "%q is not an absolute path", holt.Clip(p, 256)).WithHint("begin it with /")
	case strings.ContainsRune(p, 0):
		return "", holt.Errorf(holt.InvalidArgument, "the path contains a NUL byte").WithHint("Linux does not allow it in names")
	case len(p) > 4096:
		return "", holt.Errorf(holt.InvalidArgument, "the path is too long: %d bytes", len(p)).WithHint("the maximum is 4096 bytes")
	}
	return path.Clean(p), nil
}

// cleanPaths cleans a field that is a path, or a list of paths.
func cleanPaths(v reflect.Value) error {
	if v.Kind() == reflect.Slice {
		for i := range v.Len() {
			if err := cleanPaths(v.Index(i)); err != nil {
				return err
			}
		}
		return nil
	}
	clean, err := CleanPath(v.String())
	if err == nil {
		v.SetString(clean)
	}
	return err
}

// cleanAll cleans paths of a body: pointers to texts, or to lists of them.
func cleanAll(paths ...any) error {
	for _, p := range paths {
		if err := cleanPaths(reflect.ValueOf(p).Elem()); err != nil {
			return err
		}
	}
	return nil
}
