package cli

import (
	"path"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"holt"
)

// spot is a place in a workspace.
type spot struct{ workspace, path string }

// parseSpot reads WORKSPACE:PATH, or WORKSPACE alone for its top.
func parseSpot(s string) (spot, error) {
	name, p, _ := strings.Cut(s, ":")
	if name == "" || strings.ContainsRune(name, '/') {
		return spot{}, holt.Errorf(holt.InvalidArgument, "%q has no workspace name", s).WithHint("use WORKSPACE:PATH, such as einstein:notes/plan.md")
	}
	return spot{name, path.Clean("/" + p)}, nil
}

// takeSpot reads a place from the first arguments: WORKSPACE:PATH, or
// WORKSPACE and PATH as two of them. It returns what is left.
func takeSpot(args []string) (spot, []string, error) {
	at, err := parseSpot(args[0])
	rest := args[1:]
	if err == nil && !strings.ContainsRune(args[0], ':') && len(rest) > 0 {
		at.path, rest = path.Clean("/"+rest[0]), rest[1:]
	}
	return at, rest, err
}

// atLeast checks the number of arguments and says which are meant.
func atLeast(n, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= n && (most < 0 || len(args) <= most) {
			return nil
		}
		return holt.Errorf(holt.InvalidArgument, "%s got %s", cmd.Name(), holt.CountOf(len(args), "argument")).WithHint("usage: %s", cmd.UseLine())
	}
}

// parseSize reads a number of bytes: 500, 20M, 10GiB; 0 or none is no bound.
func parseSize(s string) (int64, error) {
	text := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(s)), "B"), "I")
	shift := 0
	if n := len(text); n > 0 {
		if i := strings.IndexByte("KMGTP", text[n-1]); i >= 0 {
			text, shift = text[:n-1], 10*(i+1)
		}
	}
	if s == "none" {
		return 0, nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 0 || v > 1<<62>>shift {
		return 0, holt.Errorf(holt.InvalidArgument, "%q is not a size", s).WithHint("use a size such as 500M, 20G or 1T (units of 1024), or none")
	}
	return v << shift, nil
}
