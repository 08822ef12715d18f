package image

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"holt"
)

// Limits of a recipe file, far above any real one. They bound the memory that a hostile
// or broken file takes.
const (
	maxRecipeBytes = 1 << 20
	maxRecipeItems = 4096
	maxExtends     = 4
)

// Recipe describes the content of an image. Its file is JSON in which
// a line that starts with // is a comment. Unknown fields are errors.
type Recipe struct {
	Name    string `json:"name"`              // a DNS label: the name of the template
	Summary string `json:"summary,omitempty"` // one line for a person
	// Extends names an embedded recipe. Its lists come before this one's, and
	// its single values apply where this one has none.
	Extends  string   `json:"extends,omitempty"`
	Packages []string `json:"packages,omitempty"` // Debian package names
	Files    []File   `json:"files,omitempty"`    // written after the packages are installed
	Users    []User   `json:"users,omitempty"`    // made before the setup commands; one must be agent with uid 1000
	// Setup commands run in order as root inside the tree, with /bin/sh -e and the
	// host's network. The first that fails ends the build.
	Setup    []string `json:"setup,omitempty"`
	Services Services `json:"services,omitzero"`
	// From is an OCI image to start from, instead of a minimal Debian:
	// docker://NAME:TAG, oci:DIR[:TAG] or docker-archive:FILE. It must be of the
	// guest's release. The packages that a computer needs are added.
	From string `json:"from,omitempty"`
	// Engine is what its computers need to run on: qemu, if they need a kernel of their
	// own, for instance for Docker. Default: any.
	Engine string `json:"engine,omitempty"`
	// KernelArgs are added to the kernel's command line.
	KernelArgs []string `json:"kernel_args,omitempty"`
	// HostCertificates makes guests trust the certificates that the host has in addition to
	// Debian's, which hosts behind a TLS-inspecting proxy need. Default: true.
	HostCertificates *bool `json:"host_certificates,omitempty"`
	// DiskSizeMB is the size of the image's disk in MiB, which is the smallest
	// root disk of its computers. Default: 2048.
	DiskSizeMB int `json:"disk_size_mb,omitempty"`
}

// File is one regular file of the image, owned by root.
type File struct {
	Path    string `json:"path"`           // absolute
	Mode    string `json:"mode,omitempty"` // octal permission bits; default: 0644
	Content string `json:"content,omitempty"`
	// Source is a file with the content, relative to the directory of the recipe. All
	// sources have at most 1 MiB together.
	Source string `json:"source,omitempty"`
}

// User is a Linux user of the image.
type User struct {
	Name   string   `json:"name"`
	UID    int      `json:"uid"`              // also the GID of the group with the same name
	Groups []string `json:"groups,omitempty"` // further groups; made if they do not exist
	Shell  string   `json:"shell,omitempty"`  // default: /bin/bash
	Home   string   `json:"home,omitempty"`   // default: /home/NAME, made with Debian's skeleton unless it is /home/agent
	Sudo   bool     `json:"sudo,omitempty"`   // may become root without a password
}

// Services names systemd units to enable, disable or mask, and defines new ones.
type Services struct {
	Define  []Service `json:"define,omitempty"` // also enabled
	Enable  []string  `json:"enable,omitempty"`
	Disable []string  `json:"disable,omitempty"`
	Mask    []string  `json:"mask,omitempty"`
}

// ParseRecipe parses a recipe file. It checks the syntax and the values, but does not
// merge in the recipe that it extends.
func ParseRecipe(data []byte) (Recipe, error) {
	var r Recipe
	if len(data) > maxRecipeBytes {
		return r, holt.Errorf(holt.InvalidArgument, "a recipe of %d bytes is too long", len(data)).
			WithHint("the maximum is %d bytes", maxRecipeBytes)
	}
	text := stripComments(data)
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return r, holt.Errorf(holt.InvalidArgument, "invalid recipe%s: %w", place(text, err), err).
			WithHint("recipes are JSON; a line that starts with // is a comment")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return r, holt.Errorf(holt.InvalidArgument, "the recipe has text after its end, in line %d", lineOf(text, dec.InputOffset())).
			WithHint("a recipe is one JSON object")
	}
	if err := r.check(); err != nil {
		return r, holt.Errorf(holt.InvalidArgument, "recipe %q: %w", clip(r.Name), err)
	}
	return r, nil
}

// place returns " in line N" for an error of the decoder, or "" if the line is unknown.
func place(data []byte, err error) string {
	var form *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var at int64
	switch {
	case errors.As(err, &form):
		at = form.Offset
	case errors.As(err, &kind):
		at = kind.Offset
	case errors.Is(err, io.ErrUnexpectedEOF):
		at = int64(len(data))
	default: // an unknown field
		_, name, unknown := strings.Cut(err.Error(), "unknown field ")
		if !unknown {
			return ""
		}
		before, rest, found := bytes.Cut(data, []byte(name))
		for found && !bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte(":")) { // the name is a value here, not a field
			at = int64(len(data) - len(rest))
			before, rest, found = bytes.Cut(rest, []byte(name))
			before = data[:int(at)+len(before)]
		}
		if !found {
			return ""
		}
		at = int64(len(before)) + 1
	}
	return fmt.Sprintf(" in line %d", lineOf(data, at))
}

// lineOf returns the line of the byte before an offset, from 1.
func lineOf(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:max(0, min(offset-1, int64(len(data))))], []byte("\n"))
}

// stripComments empties comment lines and keeps the number of lines, so that line
// numbers in errors are right. JSON strings do not span lines, so a line
// that starts with // is not part of one.
func stripComments(data []byte) []byte {
	lines := bytes.Split(data, []byte("\n"))
	for i, line := range lines {
		if bytes.HasPrefix(bytes.TrimLeft(line, " \t\r"), []byte("//")) {
			lines[i] = nil
		}
	}
	return bytes.Join(lines, []byte("\n"))
}

var (
	packageRE = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{1,127}$`)
	userRE    = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
	unitRE    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9:_.@\\-]{0,254}$`)
	argRE     = regexp.MustCompile(`^[!-~]{1,512}$`)
)

// check checks a recipe without those that it extends.
func (r *Recipe) check() error {
	if _, err := holt.ParseName(r.Name); err != nil {
		return err
	}
	items := len(r.Packages) + len(r.Files) + len(r.Users) + len(r.Setup) + len(r.KernelArgs) +
		len(r.Services.Define) + len(r.Services.Enable) + len(r.Services.Disable) + len(r.Services.Mask)
	if items > maxRecipeItems {
		return errors.New("it has more than " + strconv.Itoa(maxRecipeItems) + " items")
	}
	for _, u := range r.Users {
		if err := u.check(); err != nil {
			return err
		}
	}
	for _, f := range r.Files {
		if err := f.check(); err != nil {
			return err
		}
	}
	for _, s := range r.Services.Define {
		if err := s.check(); err != nil {
			return err
		}
	}
	if r.From != "" {
		if _, err := parseOrigin(r.From); err != nil {
			return err
		}
	}
	for _, command := range r.Setup {
		if strings.ContainsRune(command, 0) || strings.TrimSpace(command) == "" {
			return errors.New("a setup command is empty or has a NUL byte")
		}
	}
	if r.Engine != "" && r.Engine != "qemu" && r.Engine != "gvisor" {
		return errors.New("engine must be qemu or gvisor")
	}
	if r.DiskSizeMB != 0 && (r.DiskSizeMB < 256 || r.DiskSizeMB > 1<<20) {
		return errors.New("disk_size_mb must be 256 to 1048576")
	}
	return errors.Join(
		eachMatches("package", packageRE, r.Packages),
		eachMatches("service", unitRE, slices.Concat(r.Services.Enable, r.Services.Disable, r.Services.Mask)),
		eachMatches("kernel argument", argRE, r.KernelArgs))
}

func eachMatches(noun string, re *regexp.Regexp, values []string) error {
	for _, v := range values {
		if !re.MatchString(v) {
			return errors.New("invalid " + noun + " " + strconv.Quote(clip(v)))
		}
	}
	return nil
}

func (u User) check() error {
	if !userRE.MatchString(u.Name) || u.Name == "root" {
		return errors.New("invalid user " + strconv.Quote(clip(u.Name)))
	}
	if u.UID < 1000 || u.UID >= 60000 {
		return errors.New("user " + u.Name + ": uid must be 1000 to 59999")
	}
	for _, p := range []string{u.Shell, u.Home} {
		if p != "" && !cleanPath(p) {
			return errors.New("user " + u.Name + ": " + strconv.Quote(clip(p)) + " is not an absolute, clean path")
		}
	}
	return eachMatches("group", userRE, u.Groups)
}

func (f File) check() error {
	if !cleanPath(f.Path) || f.Path == "/" {
		return errors.New("file " + strconv.Quote(clip(f.Path)) + ": not an absolute, clean path")
	}
	for _, dir := range []string{"/proc", "/sys", "/dev", "/run", "/tmp"} {
		if strings.HasPrefix(f.Path+"/", dir+"/") {
			return errors.New("file " + f.Path + ": " + dir + " is not on the disk")
		}
	}
	if strings.HasPrefix(f.Path+"/", agentHome+"/") {
		return errors.New("file " + f.Path + ": the workspace is mounted over " + agentHome)
	}
	if f.Source != "" && (f.Content != "" || !fs.ValidPath(f.Source)) {
		return errors.New("file " + f.Path + ": it has both content and a source, or the source " + strconv.Quote(clip(f.Source)) + " is not below the recipe's directory")
	}
	_, err := f.mode()
	return err
}

func (f File) mode() (int64, error) {
	if f.Mode == "" {
		return 0o644, nil
	}
	mode, err := strconv.ParseUint(f.Mode, 8, 32)
	if err != nil || mode > 0o7777 {
		return 0, errors.New("file " + f.Path + ": mode " + strconv.Quote(clip(f.Mode)) + " is not octal permission bits")
	}
	return int64(mode), nil
}

// cleanPath reports whether p is an absolute, clean path without control characters.
func cleanPath(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && len(p) <= 1024 &&
		!strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufffd' })
}

// clip shortens a value of a recipe for logs and errors.
func clip(s string) string { return holt.Clip(s, 64) }
