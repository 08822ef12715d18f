package computer

import (
	"slices"
	"strings"
	"testing"

	"holt"
)

// TestForkNames: names of forks are numbered, leave out what is taken, and are names.
func TestForkNames(t *testing.T) {
	got, err := ForkNames("curie", 3, func(name string) bool { return name == "curie-2" })
	if want := []string{"curie-1", "curie-3", "curie-4"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if _, err := ForkNames(strings.Repeat("x", 62), 1, func(string) bool { return false }); holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("a name that is too long: %v", err)
	}
}
