package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// The tables of a group stand in the document between two comments; what
// people write about them stands outside and is left alone.
const (
	groupBegin = "<!-- bench: %s -->\n"
	groupEnd   = "<!-- end of %s -->\n"
)

// replace puts text where a document has the tables of a group.
func replace(document []byte, group string, text []byte) ([]byte, error) {
	begin, end := fmt.Sprintf(groupBegin, group), fmt.Sprintf(groupEnd, group)
	before, rest, ok := bytes.Cut(document, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return nil, fmt.Errorf("the document has no place for the tables of %s: the lines %q and %q", group, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return bytes.Join([][]byte{before, []byte(begin), text, []byte(end), after}, nil), nil
}

// writeGroup writes the tables of a group as Markdown: what wrote them, on what
// machine, and then the sections.
func writeGroup(w io.Writer, args []string, shape [][2]string, sections []*section) {
	fmt.Fprintf(w, "*Written by `%s`*", strings.Join(append([]string{"go run ./bench"}, args...), " "))
	for _, s := range shape {
		if s[1] != "" {
			fmt.Fprintf(w, " · %s %s", s[0], s[1])
		}
	}
	fmt.Fprint(w, "\n\n")
	for _, s := range sections {
		s.write(w)
	}
	fmt.Fprint(w, missed(sections))
}

// missed lists the targets that were not reached.
func missed(sections []*section) string {
	var b strings.Builder
	count := 0
	for _, s := range sections {
		for _, f := range s.figures {
			for _, t := range f.targets {
				count++
				if !f.met(t) {
					fmt.Fprintf(&b, "- %s: %s, %s; wanted %s\n", s.title, f.name, f.found(t), f.wanted(t))
				}
			}
		}
	}
	switch {
	case count == 0:
		return ""
	case b.Len() == 0:
		return fmt.Sprintf("All %d targets are met.\n", count)
	}
	return fmt.Sprintf("Targets missed, of %d:\n\n%s", count, b.String())
}
