package workspace

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"holt"
)

// listAll lists a directory in pages of most entries and returns the names.
func listAll(t *testing.T, files Files, dir string, most int) (names []string) {
	t.Helper()
	spec := holt.PageSpec{Limit: most}
	for {
		page, err := files.List(dir, spec)
		if err != nil || len(page.Items) > most {
			t.Fatalf("%d of %d items, %v", len(page.Items), most, err)
		}
		for _, f := range page.Items {
			names = append(names, string(f.Name))
			if string(f.Path) != dir+"/"+string(f.Name) || f.Kind != "file" || f.Size != int64(len(f.Name)) {
				t.Errorf("%+v", f)
			}
		}
		if page.Next == "" {
			return names
		}
		spec.Cursor = page.Next
	}
}

// A directory is listed in pages, by name, whatever of it is cached, dirty,
// gone or only in the index; now and at a checkpoint.
func TestListPages(t *testing.T) {
	f := newFixture(t, Options{CacheInodes: 64, CacheEntries: 64, FlushOps: 50})
	dir := f.mkdir("d").Ino
	rng := rand.New(rand.NewPCG(1, 2))
	have := map[string]bool{}
	change := func(n int) {
		for range n {
			name := fmt.Sprintf("f%03x\xff%s", rng.IntN(700), strings.Repeat("n", rng.IntN(3)))
			switch {
			case have[name]:
				f.ok(f.t.Unlink(f.c, dir, name))
			default:
				f.put("d/"+name, name)
			}
			have[name] = !have[name]
		}
	}
	names := func() (all []string) {
		for name, is := range have {
			if is {
				all = append(all, name)
			}
		}
		slices.Sort(all)
		return all
	}
	change(900)
	if _, err := f.w.Checkpoint(CheckpointOptions{Name: "then"}); err != nil {
		t.Fatal(err)
	}
	then := names()
	change(300)
	if len(then) < 2*smallDir {
		t.Fatalf("%d names: too few", len(then))
	}
	at, err := f.w.At("then")
	if err != nil {
		t.Fatal(err)
	}
	for _, most := range []int{7, 100, 1000} {
		if got := listAll(t, Files{Tree: f.t}, "/d", most); !slices.Equal(got, names()) {
			t.Errorf("pages of %d: %d names of %d", most, len(got), len(names()))
		}
		if got := listAll(t, Files{Tree: f.t, At: at}, "/d", most); !slices.Equal(got, then) {
			t.Errorf("pages of %d at a checkpoint: %d names of %d", most, len(got), len(then))
		}
		change(5)
	}
	if _, err := (Files{Tree: f.t}).List("/d", holt.PageSpec{Cursor: "/12"}); holt.AsError(err).Code != holt.Conflict {
		t.Errorf("a cursor of a guest's directory: %v", err)
	}
}

// What is there all the while is seen once, whatever comes and goes beside it.
func TestListPagesUnderChange(t *testing.T) {
	f := newFixture(t, Options{CacheInodes: 16, CacheEntries: 16, FlushOps: 20})
	dir := f.mkdir("d").Ino
	var stay []string
	for i := range 400 {
		name := fmt.Sprintf("%04d", i)
		f.put("d/"+name, name)
		stay = append(stay, name)
	}
	var got []string
	spec := holt.PageSpec{Limit: 9}
	for i := 0; ; i++ {
		page, err := Files{Tree: f.t}.List("/d", spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Items {
			if len(e.Name) == 4 {
				got = append(got, string(e.Name))
			}
		}
		f.put(fmt.Sprintf("d/%04d-new", (i*37)%400), "")
		if i%2 == 1 {
			f.ok(f.t.Unlink(f.c, dir, fmt.Sprintf("%04d-new", ((i-1)*37)%400)))
		}
		if page.Next == "" {
			break
		}
		spec.Cursor = page.Next
	}
	if !slices.Equal(got, stay) {
		t.Errorf("%d of %d names", len(got), len(stay))
	}
}

// What a page holds in memory does not grow with the directory.
func TestLeastNames(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{0, 1, 9, 10, 11, 19, 20, 21, 1000} {
		least, all := leastNames{most: 10}, []string{}
		for range n {
			name := fmt.Sprintf("%06d", rng.IntN(1e6))
			all = append(all, name)
			least.add(name, dentry{})
			if len(least.kept) >= 20 {
				t.Fatalf("%d names are held", len(least.kept))
			}
		}
		least.cut()
		slices.Sort(all)
		var got []string
		for _, e := range least.kept {
			got = append(got, e.name)
		}
		if !slices.Equal(got, all[:min(n, 10)]) {
			t.Errorf("of %d: %v, want %v", n, got, all[:min(n, 10)])
		}
	}
}
