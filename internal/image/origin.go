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

// origin is a reference of an OCI image in the syntax of containers-transports(5):
// docker://NAME[:TAG][@DIGEST] in a registry, oci:DIR[:TAG] a layout,
// docker-archive:FILE a file of docker save.
type origin struct{ transport, where, tag string }

func parseOrigin(s string) (origin, error) {
	bad := func(why string) error {
		return holt.Errorf(holt.InvalidArgument, "invalid reference %q of an OCI image: %s", clip(s), why).
			WithHint("give docker://NAME:TAG, oci:DIRECTORY or oci:DIRECTORY:TAG, or docker-archive:FILE")
	}
	if len(s) > 1024 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return origin{}, bad("it is too long or has blanks")
	}
	if where, ok := strings.CutPrefix(s, holt.OCIRegistry); ok {
		if _, err := name.ParseReference(where); err != nil {
			return origin{}, bad("invalid name or tag")
		}
		return origin{holt.OCIRegistry, where, ""}, nil
	}
	o := origin{transport: holt.OCIArchive}
	rest, ok := strings.CutPrefix(s, holt.OCIArchive)
	if !ok {
		o.transport = holt.OCILayout
		if rest, ok = strings.CutPrefix(s, holt.OCILayout); !ok {
			return origin{}, bad("it has no known prefix")
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

// label returns the name of the reference's template: the last part of the name, and the tag.
func (o origin) label() string {
	where, _, _ := strings.Cut(o.where, "@")
	s := path.Base(where) + "-" + o.tag
	if o.transport == holt.OCIArchive {
		s = strings.TrimSuffix(path.Base(where), ".tar")
	}
	s = strings.Trim(notLabelRE.ReplaceAllString(strings.ToLower(s), "-"), "-")
	return strings.TrimRight(s[:min(len(s), 40)], "-")
}

// open finds the image for this host's architecture. The returned image reads its layers
// lazily.
//
// Errors: NotFound, Unsupported (no image for this architecture), Forbidden (the
// registry needs a login), Unavailable.
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
			return nil, holt.Errorf(holt.InvalidArgument, "%s is not a regular file", o.where)
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

// maxIndexes is the maximum depth of nested indexes of a layout.
const maxIndexes = 4

// choose finds the image of a layout for this architecture and, if the reference has one,
// with its tag.
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
			return nil, holt.Errorf(holt.InvalidArgument, "%s has several images", o).WithHint("choose one: %s:TAG", o)
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

// explain returns an error with a code and a hint for an image that cannot be read.
func (o origin) explain(err error) error {
	if err == nil {
		return nil
	}
	var answer *transport.Error
	var unreachable net.Error
	switch {
	case errors.As(err, &answer) && (answer.StatusCode == 401 || answer.StatusCode == 403):
		return holt.Errorf(holt.Forbidden, "the registry refuses %s: %w", o, err).
			WithHint("check the name; if the image needs a login, run docker login as the daemon's user")
	case errors.As(err, &answer) && answer.StatusCode == 404, errors.Is(err, fs.ErrNotExist):
		return holt.Errorf(holt.NotFound, "there is no image %s", o)
	case errors.As(err, &answer), errors.As(err, &unreachable):
		return holt.Errorf(holt.Unavailable, "%s cannot be fetched: %w", o, err).WithHint("check that this host reaches the registry")
	}
	return holt.Errorf(holt.InvalidArgument, "%s cannot be read: %w", o, err)
}

// baseImage is the metadata of an unpacked OCI image.
type baseImage struct {
	digest string   // of its manifest
	env    []string // NAME=value, from its configuration
}

// unpack writes the files of an image into a tar file. More than limit bytes of
// files are an error.
func (o origin) unpack(ctx context.Context, to string, limit int64, report func(part float64)) (baseImage, error) {
	im, err := o.open(ctx)
	if err != nil {
		return baseImage{}, err
	}
	digest, err := im.Digest()
	if err != nil {
		return baseImage{}, o.explain(err)
	}
	config, err := im.ConfigFile()
	if err != nil {
		return baseImage{}, o.explain(err)
	}
	if config.OS != "linux" || config.Architecture != runtime.GOARCH {
		return baseImage{}, holt.Errorf(holt.Unsupported, "%s is for %s/%s, and this host is linux/%s", o, clip(config.OS), clip(config.Architecture), runtime.GOARCH)
	}
	f, err := os.Create(to)
	if err != nil {
		return baseImage{}, err
	}
	defer f.Close()
	unpacked := 2*limit + 64<<20 // with files that upper layers replace
	files := mutate.Extract(bounded{im, &unpacked})
	defer files.Close()
	defer context.AfterFunc(ctx, func() { files.Close() })()
	s := &treeFilter{files: files, from: tar.NewReader(files), to: tar.NewWriter(f), left: limit, report: func(left int64) { report(1 - float64(left)/float64(limit)) }}
	if err := s.copy(); err != nil {
		if ctx.Err() != nil {
			return baseImage{}, ctx.Err()
		}
		if holt.CodeOf(err) == holt.Internal && !errors.As(err, new(*fs.PathError)) {
			err = o.explain(err)
		}
		return baseImage{}, err
	}
	if err := s.check(o); err != nil {
		return baseImage{}, err
	}
	return baseImage{digest.String(), guestVariables(config.Config.Env)}, f.Close()
}

var variableRE = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=[^\x00-\x1f"'\\#]*$`)

// guestVariables returns the variables that /etc/environment can represent.
func guestVariables(env []string) (kept []string) {
	for _, v := range env[:min(len(env), 256)] {
		if len(v) <= 4096 && variableRE.MatchString(v) {
			kept = append(kept, v)
		}
	}
	return kept
}

// treeFilter copies the entries of an image's tree that a root disk needs.
type treeFilter struct {
	files  io.Reader // what from reads
	from   *tar.Reader
	to     *tar.Writer
	left   int64 // bytes that may still be copied
	report func(left int64)

	release string // /etc/os-release
	dpkg    bool   // the image has dpkg's list of packages
}

// entryBytes is added to the size of each entry.
const entryBytes = 4096

// maxPath is the maximum length of a name or of an attribute's value, bytes.
const maxPath = 4096

// bounded is an image that returns an error after left uncompressed bytes of all layers,
// including files that upper layers replace.
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

func (s *treeFilter) copy() error {
	for {
		h, err := s.from.Next()
		if errors.Is(err, io.EOF) {
			// An error in a layer is returned only after the end of the tar file.
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

// leftOut reports whether an entry of an image is left out: devices, files below mount points,
// apt's sources, which may not be reachable from here, and files that tell
// programs that they run in a container.
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

func (s *treeFilter) entry(at string, h *tar.Header) error {
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

// check returns Unsupported unless the image is Debian of the guest's release.
func (s *treeFilter) check(o origin) error {
	if codename(s.release) == suite && s.dpkg {
		return nil
	}
	what := "it is not Debian"
	if c := codename(s.release); c != "" {
		what = "its release is " + clip(c)
	}
	if !s.dpkg {
		what = "it has no dpkg database"
	}
	return holt.Errorf(holt.Unsupported, "%s cannot become a computer: %s", o, what).
		WithHint("the image must be Debian %s, from which systemd is added; many images have such a variant, such as python:3.12-slim-%s", suite, suite)
}
