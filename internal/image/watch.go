package image

import (
	"regexp"
	"strconv"
	"strings"
)

// watcher reads the output of mmdebstrap and its children. It reports progress and
// remembers causes of failure.
type watcher struct {
	report func(stage, detail string, fraction float64)
	log    func(line string)

	phase    phase
	expected int // packages of this phase
	done     int // packages fetched, unpacked or set up in this phase

	step        string // last "holt: …"
	noSpace     bool
	unreachable string
}

// phase is a part of mmdebstrap's work. It begins at the output line that starts
// with begin, and covers the fractions from start to end of the build.
type phase struct {
	begin, stage string
	start, end   float64
	perPackage   int // lines counted for each package
}

func phases() []phase {
	return []phase{
		{"I: running apt-get update", "packages", 0.06, 0.08, 0},
		{"I: downloading packages with apt", "packages", 0.08, 0.12, 1},
		{"I: extracting archives", "packages", 0.12, 0.15, 0},
		{"I: installing essential packages", "packages", 0.15, 0.27, 2},
		{"I: installing remaining packages", "packages", 0.27, 0.80, 3},
		{"holt: ", "setup", 0.80, 0.84, 0},
		{"I: cleaning package lists", "setup", 0.84, 0.85, 0},
	}
}

var (
	newlyRE = regexp.MustCompile(`^\d+ upgraded, (\d+) newly installed`)
)

func (w *watcher) line(s string) {
	w.log(s)
	w.diagnose(s)
	for _, p := range phases() {
		if strings.HasPrefix(s, p.begin) {
			if p != w.phase {
				w.phase, w.done = p, 0
			}
			w.step = strings.TrimPrefix(s, "holt: ")
			w.report(p.stage, strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(w.step, "I: "), "...")), p.start)
			return
		}
	}
	if m := newlyRE.FindStringSubmatch(s); m != nil {
		w.expected, _ = strconv.Atoi(m[1]) // digits
	}
	if verb, name := packageLine(s); verb != "" && w.phase.perPackage > 0 && w.expected > 0 {
		w.done++
		part := min(1, float64(w.done)/float64(w.expected*w.phase.perPackage))
		w.report(w.phase.stage, verb+" "+name, w.phase.start+(w.phase.end-w.phase.start)*part)
	}
}

// packageLine recognises the lines that apt and dpkg print once for each package.
func packageLine(s string) (verb, name string) {
	f := strings.Fields(s)
	switch {
	case strings.HasPrefix(s, "Get:") && len(f) > 4:
		return "fetching", f[4]
	case strings.HasPrefix(s, "Unpacking ") && len(f) > 1:
		return "unpacking", f[1]
	case strings.HasPrefix(s, "Setting up ") && len(f) > 2:
		return "setting up", f[2]
	}
	return "", ""
}

// diagnose remembers lines that explain a failure.
func (w *watcher) diagnose(s string) {
	if strings.Contains(s, "No space left on device") || strings.Contains(s, "You don't have enough free space") {
		w.noSpace = true
	}
	if w.unreachable == "" && (strings.HasPrefix(s, "E: Failed to fetch") || strings.HasPrefix(s, "E: Unable to fetch") ||
		strings.Contains(s, "Could not resolve") || strings.Contains(s, "Hash Sum mismatch")) {
		w.unreachable = strings.TrimPrefix(s, "E: ")
	}
}
