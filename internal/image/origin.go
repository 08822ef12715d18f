package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path"
	"regexp"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"holt"
)

// origin says where an OCI image is. It is written as containers-transports(5)
// has it: docker://NAME[:TAG][@DIGEST] in a registry, oci:DIR[:TAG] a layout,
// docker-archive:FILE what docker save wrote.
type origin struct{ transport, where, tag string }

func parseOrigin(s string) (origin, error) {
	bad := func(why string) error {
		return holt.Errorf(holt.InvalidArgument, "%q names no OCI image: %s", clip(s), why).
			WithHint("write docker://NAME:TAG, oci:DIRECTORY or oci:DIRECTORY:TAG, or docker-archive:FILE")
	}
	if len(s) > 1024 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return origin{}, bad("it is too long, or has blanks")
	}
	if where, ok := strings.CutPrefix(s, holt.OCIRegistry); ok {
		if _, err := name.ParseReference(where); err != nil {
			return origin{}, bad("it is no reference")
		}
		return origin{holt.OCIRegistry, where, ""}, nil
	}
	o := origin{transport: holt.OCIArchive}
	rest, ok := strings.CutPrefix(s, holt.OCIArchive)
	if !ok {
		o.transport = holt.OCILayout
		if rest, ok = strings.CutPrefix(s, holt.OCILayout); !ok {
			return origin{}, bad("it does not say how to get it")
		}
		rest, o.tag, _ = strings.Cut(rest, ":")
	}
	if !path.IsAbs(rest) {
		return origin{}, bad("the path is not absolute")
	}
	o.where = rest
	return o, nil
}

func (o origin) String() string {
	if o.tag != "" {
		return o.transport + o.where + ":" + o.tag
	}
	return o.transport + o.where
}

var notLabelRE = regexp.MustCompile(`[^a-z0-9]+`)

// label makes the name of a template of it: the last part and the tag.
func (o origin) label() string {
	where, _, _ := strings.Cut(o.where, "@")
	s := path.Base(where) + "-" + o.tag
	if o.transport == holt.OCIArchive {
		s = strings.TrimSuffix(path.Base(where), ".tar")
	}
	s = strings.Trim(notLabelRE.ReplaceAllString(strings.ToLower(s), "-"), "-")
	return strings.TrimRight(s[:min(len(s), 40)], "-")
}

// open finds the image for this host's architecture. What it returns reads from
// where the image is, as far as it is asked.
//
// Errors: NotFound, Unsupported (no image for this architecture), Forbidden (the
// registry wants to know who asks), Unavailable.
func (o origin) open(ctx context.Context) (v1.Image, error) {
	switch o.transport {
	case holt.OCIRegistry:
		ref, err := name.ParseReference(o.where)
		if err != nil {
			return nil, fmt.Errorf("parse reference: %w", err)
		}
		im, err := remote.Image(ref, remote.WithContext(ctx), remote.WithPlatform(platform()), remote.WithAuthFromKeychain(authn.DefaultKeychain))
		return im, o.explain(err)
	case holt.OCIArchive:
		if info, err := os.Stat(o.where); err == nil && !info.Mode().IsRegular() {
			return nil, holt.Errorf(holt.InvalidArgument, "%s is no file", o.where)
		}
		im, err := tarball.ImageFromPath(o.where, nil)
		return im, o.explain(err)
	}
	index, err := layout.ImageIndexFromPath(o.where)
	if err != nil {
		return nil, o.explain(err)
	}
	return o.choose(index)
}

func platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// maxIndexes bounds how deep the indexes of a layout are followed.
const maxIndexes = 4

// choose finds the one image of a layout that has the tag, if there is one, and
// is for this architecture.
func (o origin) choose(index v1.ImageIndex) (v1.Image, error) {
	wanted := match.Matcher(func(v1.Descriptor) bool { return true })
	if o.tag != "" {
		wanted = match.Name(o.tag)
	}
	for range maxIndexes {
		images, err := partial.FindImages(index, func(d v1.Descriptor) bool {
			return d.MediaType.IsImage() && wanted(d) && (d.Platform == nil || d.Platform.Satisfies(platform()))
		})
		if err != nil {
			return nil, o.explain(err)
		}
		if len(images) > 1 {
			return nil, holt.Errorf(holt.InvalidArgument, "%s has several images", o).WithHint("name one: %s:TAG", o)
		}
		if len(images) == 1 {
			return images[0], nil
		}
		deeper, err := partial.FindIndexes(index, func(d v1.Descriptor) bool { return d.MediaType.IsIndex() && wanted(d) })
		if err != nil {
			return nil, o.explain(err)
		}
		if len(deeper) != 1 {
			break
		}
		index, wanted = deeper[0], func(v1.Descriptor) bool { return true }
	}
	return nil, holt.Errorf(holt.NotFound, "%s has no such image for linux/%s", o, runtime.GOARCH)
}

// explain says what a person can do about an image that cannot be had.
func (o origin) explain(err error) error {
	if err == nil {
		return nil
	}
	var answer *transport.Error
	var unreachable net.Error
	switch {
	case errors.As(err, &answer) && (answer.StatusCode == 401 || answer.StatusCode == 403):
		return holt.Errorf(holt.Forbidden, "the registry does not give %s: %w", o, err).
			WithHint("see whether the name is right; docker login, as the daemon's user, keeps what the registry wants to know")
	case errors.As(err, &answer) && answer.StatusCode == 404, errors.Is(err, fs.ErrNotExist):
		return holt.Errorf(holt.NotFound, "there is no image %s", o)
	case errors.As(err, &answer), errors.As(err, &unreachable):
		return holt.Errorf(holt.Unavailable, "%s cannot be fetched: %w", o, err).WithHint("see whether this host reaches the registry")
	}
	return holt.Errorf(holt.InvalidArgument, "%s cannot be read: %w", o, err)
}

// foundation is what an OCI image brings into a root disk besides its files.
type foundation struct {
	digest string   // of its manifest
	env    []string // NAME=value, as its configuration has it
}

// unpack writes the files of an image, as its layers leave them, into a tar
// file. At most limit bytes of them are taken.
func (o origin) unpack(ctx context.Context, to string, limit int64, report func(part float64)) (foundation, error) {
	im, err := o.open(ctx)
	if err != nil {
		return foundation{}, err
	}
	digest, err := im.Digest()
	if err != nil {
		return foundation{}, o.explain(err)
	}
	config, err := im.ConfigFile()
	if err != nil {
		return foundation{}, o.explain(err)
	}
	if config.OS != "linux" || config.Architecture != runtime.GOARCH {
		return foundation{}, holt.Errorf(holt.Unsupported, "%s is for %s/%s, and this host is linux/%s", o, clip(config.OS), clip(config.Architecture), runtime.GOARCH)
	}
	f, err := os.Create(to)
	if err != nil {
		return foundation{}, err
	}
	defer f.Close()
	unpacked := 2*limit + 64<<20 // with what upper layers replace
	files := mutate.Extract(bounded{im, &unpacked})
	defer files.Close()
	defer context.AfterFunc(ctx, func() { files.Close() })()
	s := &sieve{files: files, from: tar.NewReader(files), to: tar.NewWriter(f), left: limit, report: func(left int64) { report(1 - float64(left)/float64(limit)) }}
	if err := s.copy(); err != nil {
		if ctx.Err() != nil {
			return foundation{}, ctx.Err()
		}
		if holt.CodeOf(err) == holt.Internal && !errors.As(err, new(*fs.PathError)) {
			err = o.explain(err)
		}
		return foundation{}, err
	}
	if err := s.suits(o); err != nil {
		return foundation{}, err
	}
	return foundation{digest.String(), guestVariables(config.Config.Env)}, f.Close()
}

var variableRE = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=[^\x00-\x1f"'\\#]*$`)

// guestVariables are those of an image's variables that /etc/environment can hold.
func guestVariables(env []string) (kept []string) {
	for _, v := range env[:min(len(env), 256)] {
		if len(v) <= 4096 && variableRE.MatchString(v) {
			kept = append(kept, v)
		}
	}
	return kept
}

// sieve copies the entries of an image's tree that a root disk needs.
type sieve struct {
	files  io.Reader // what from reads
	from   *tar.Reader
	to     *tar.Writer
	left   int64 // bytes that it may still have
	report func(left int64)

	release string // /etc/os-release
	dpkg    bool   // it has a list of packages
}

// entryBytes is what each entry counts for beyond its content.
const entryBytes = 4096

// maxPath is how long a name, or an attribute's value, may be, bytes.
const maxPath = 4096

// bounded is an image of which no more than so many bytes are unpacked, whatever
// its layers hold and hide from one another.
type bounded struct {
	v1.Image
	left *int64
}

func (b bounded) Layers() ([]v1.Layer, error) {
	layers, err := b.Image.Layers()
	for i, l := range layers {
		layers[i] = boundedLayer{l, b.left}
	}
	return layers, err
}

type boundedLayer struct {
	v1.Layer
	left *int64
}

func (l boundedLayer) Uncompressed() (io.ReadCloser, error) {
	r, err := l.Layer.Uncompressed()
	return boundedReader{r, l.left}, err
}

type boundedReader struct {
	io.ReadCloser
	left *int64
}

func (r boundedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if *r.left -= int64(n); *r.left < 0 {
		return 0, tooLarge()
	}
	return n, err
}

func tooLarge() error {
	return holt.Errorf(holt.InvalidArgument, "the files of the image do not fit on the disk").WithHint("raise the recipe's disk_size_mb")
}

func (s *sieve) copy() error {
	for {
		h, err := s.from.Next()
		if errors.Is(err, io.EOF) {
			// What went wrong in a layer comes only after a regular end.
			if _, err := io.Copy(io.Discard, s.files); err != nil {
				return err
			}
			return s.to.Close()
		}
		if err != nil {
			return err
		}
		at := path.Clean("/" + h.Name)
		if len(h.Name) > maxPath || len(h.Linkname) > maxPath {
			return holt.Errorf(holt.InvalidArgument, "the image has a name of more than %d bytes", maxPath)
		}
		if s.left -= entryBytes + max(h.Size, 0); s.left < 0 {
			return tooLarge()
		}
		if at == "/" || leftOut(at, h.Typeflag) {
			continue
		}
		maps.DeleteFunc(h.PAXRecords, func(k, v string) bool { return !strings.HasPrefix(k, "SCHILY.xattr.") || len(v) > maxPath })
		h.Name = strings.TrimPrefix(at, "/")
		if h.Typeflag == tar.TypeDir {
			h.Name += "/"
		}
		h.Format = tar.FormatPAX
		if err := s.entry(at, h); err != nil {
			return err
		}
		s.report(s.left)
	}
}

// leftOut tells what of an image a computer must not have: what the kernel
// shows, devices, the image's own packages' sources, which may not be reachable
// from here, and what tells its programs that they are in a container.
func leftOut(at string, kind byte) bool {
	switch kind {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
	default:
		return true
	}
	switch at {
	case "/.dockerenv", "/etc/resolv.conf", "/etc/hostname", "/etc/hosts", "/etc/machine-id", "/usr/sbin/policy-rc.d", "/etc/apt/sources.list":
		return true
	}
	for _, dir := range []string{"/dev/", "/proc/", "/sys/", "/run/", "/tmp/", agentHome + "/", "/etc/apt/sources.list.d/", "/etc/apt/apt.conf.d/", "/var/lib/apt/lists/", "/var/cache/apt/"} {
		if strings.HasPrefix(at, dir) && (kind != tar.TypeDir || !strings.Contains(dir, "/apt/")) {
			return true
		}
	}
	return false
}

func (s *sieve) entry(at string, h *tar.Header) error {
	if err := s.to.WriteHeader(h); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	s.dpkg = s.dpkg || at == "/var/lib/dpkg/status" && h.Size > 0
	var from io.Reader = s.from
	if at == "/usr/lib/os-release" || at == "/etc/os-release" {
		text, err := io.ReadAll(io.LimitReader(s.from, 4096))
		if err != nil {
			return err
		}
		s.release, from = string(text), io.MultiReader(bytes.NewReader(text), s.from)
	}
	_, err := io.Copy(s.to, from)
	return err
}

// suits refuses an image that does not become a computer by adding packages of
// the guest's release.
func (s *sieve) suits(o origin) error {
	if codename(s.release) == suite && s.dpkg {
		return nil
	}
	what := "it is not Debian"
	if c := codename(s.release); c != "" {
		what = "its release is " + clip(c)
	}
	if !s.dpkg {
		what = "it has no list of packages"
	}
	return holt.Errorf(holt.Unsupported, "%s cannot become a computer: %s", o, what).
		WithHint("a computer needs systemd, which is added from Debian %s; many images have a variant of that release, as python:3.12-slim-%s", suite, suite)
}
