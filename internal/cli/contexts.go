package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
	"holt/client"
)

// localContext is the name of what needs none: the daemon on this machine.
const localContext = "local"

// mostContexts bounds the file of contexts, bytes.
const mostContexts = 1 << 20

// endpoint is a server that can be called: all that a context keeps.
type endpoint struct {
	Server      string `json:"server"` // unix:/path, host:port, http://… or https://…
	Token       string `json:"token,omitempty"`
	CA          string `json:"ca,omitempty"`          // PEM
	Fingerprint string `json:"fingerprint,omitempty"` // SHA-256 of the only certificate that it may show, hexadecimal
}

// contexts is the file of contexts.
type contexts struct {
	Current  string              `json:"current,omitempty"` // "": local
	Contexts map[string]endpoint `json:"contexts"`
}

// contextsPath returns where the file is.
func (a *app) contextsPath() (string, error) {
	dir := a.getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // as its specification has it
		home := a.getenv("HOME")
		if home == "" {
			return "", holt.Errorf(holt.InvalidArgument, "no home directory to store contexts in").WithHint("set HOME or XDG_CONFIG_HOME")
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "holt", "contexts.json"), nil
}

// loadContexts reads the file; one that is not there is empty. It refuses a file that others can read or
// have written: it holds tokens, and says to whom they are sent.
func (a *app) loadContexts() (contexts, error) {
	none := contexts{Contexts: map[string]endpoint{}}
	path, err := a.contextsPath()
	if err != nil {
		return none, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	} else if err != nil {
		return none, here(err, path)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return none, here(err, path)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return none, holt.Errorf(holt.InvalidArgument, "%s is not a regular file", path).WithHint("move the file away and add the contexts again")
	case st.Mode&0o077 != 0:
		return none, holt.Errorf(holt.Forbidden, "other users can read the tokens in %s", path).WithHint("chmod 600 %s; if others may have read it, replace the tokens", shellWord(path))
	case int(st.Uid) != os.Geteuid() && st.Uid != 0:
		return none, holt.Errorf(holt.Forbidden, "%s belongs to another user", path).WithHint("chown the file, or move it away and add the contexts again")
	}
	return decodeContexts(f, path)
}

func decodeContexts(r io.Reader, path string) (contexts, error) {
	out := contexts{}
	data, err := io.ReadAll(io.LimitReader(r, mostContexts+1))
	if err != nil {
		return out, here(err, path)
	}
	if err := json.Unmarshal(data, &out); err != nil || len(data) > mostContexts {
		return contexts{}, holt.Errorf(holt.Corrupt, "%s is not a valid file of contexts", path).WithHint("move the file away and add the contexts again")
	}
	for name := range out.Contexts {
		if _, err := holt.ParseName(name); err != nil || name == localContext {
			return contexts{}, holt.Errorf(holt.Corrupt, "%s: invalid context name %q", path, name).WithHint("a name has 1 to 63 characters a-z, 0-9 and -; %s is reserved for this machine", localContext)
		}
	}
	if out.Contexts == nil {
		out.Contexts = map[string]endpoint{}
	}
	return out, nil
}

// changeContexts changes the file as one step, one caller at a time.
func (a *app) changeContexts(change func(*contexts) error) error {
	path, err := a.contextsPath()
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return here(err, dir)
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return here(err, path+".lock")
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return here(err, path+".lock")
	}
	c, err := a.loadContexts()
	if err == nil {
		err = change(&c)
	}
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return here(replaceFile(path, append(data, '\n')), path)
}

// replaceFile makes a file, of mode 0600, that is whole at any instant.
func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".contexts-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// target says which daemon is called.
type target struct {
	endpoint
	name   string // of the context; "" if it is none
	socket string // of a daemon on this machine
}

// remote says that it is called over TCP, and may be elsewhere.
func (t target) remote() bool { return t.socket == "" }

// elsewhere says that it was named as another than this machine's own.
func (t target) elsewhere() bool { return t.remote() || t.Server != "" }

// called names it for a person.
func (t target) called() string {
	if t.name != "" {
		return "the context " + t.name
	}
	return cmp.Or(t.Server, "the daemon of this machine")
}

// target finds out which daemon is called: by --data-dir, --context, HOLT_CONTEXT, HOLT_SERVER, HOLT_SOCKET or
// HOLT_DATA_DIR, the current context, or as the one of this machine.
func (a *app) target() (target, error) {
	if a.dataDir != "" && a.context != "" {
		return target{}, holt.Errorf(holt.InvalidArgument, "--data-dir and --context exclude each other").WithHint("use only one of them")
	}
	if a.dataDir != "" {
		return a.localTarget()
	}
	if name := cmp.Or(a.context, a.getenv(holt.EnvContext)); name != "" {
		c, err := a.loadContexts()
		if err != nil {
			return target{}, err
		}
		return a.contextTarget(c, name)
	}
	if is := cmp.Or(a.getenv(holt.EnvServer), a.getenv(holt.EnvHost)); is != "" {
		s := endpoint{Server: is, Token: a.getenv(holt.EnvToken)}
		if file := a.getenv(holt.EnvCAFile); file != "" {
			pem, err := readSmall(file)
			if err != nil {
				return target{}, err
			}
			s.CA = string(pem)
		}
		return reach(s, "")
	}
	if a.getenv(holt.EnvSocket) != "" || a.getenv(holt.EnvDataDir) != "" {
		return a.localTarget()
	}
	if a.getenv("XDG_CONFIG_HOME") == "" && a.getenv("HOME") == "" { // as of a service
		return a.localTarget()
	}
	c, err := a.loadContexts()
	if err != nil {
		return target{}, err
	}
	return a.contextTarget(c, cmp.Or(c.Current, localContext))
}

func (a *app) localTarget() (target, error) {
	socket, err := a.socket()
	return target{name: localContext, socket: socket}, err
}

// contextTarget is what a context names.
func (a *app) contextTarget(c contexts, name string) (target, error) {
	if name == localContext {
		return a.localTarget()
	}
	s, ok := c.Contexts[name]
	if !ok {
		return target{}, noContext(name)
	}
	return reach(s, name)
}

func noContext(name string) error {
	return holt.Errorf(holt.NotFound, "no context %q", name).WithHint("list contexts with: holt context list; add it with: holt context add %s --server URL --token-file FILE", name)
}

// reach tells a socket from what is called over TCP.
func reach(s endpoint, name string) (target, error) {
	if path, ok := strings.CutPrefix(s.Server, "unix:"); ok {
		if path = strings.TrimPrefix(path, "//"); !filepath.IsAbs(path) {
			return target{}, holt.Errorf(holt.InvalidArgument, "%q is not a socket path", s.Server).WithHint("use unix: and an absolute path")
		}
		return target{endpoint: s, name: name, socket: path}, nil
	}
	return target{endpoint: s, name: name}, nil
}

// options are those of a client of it.
func (t target) options() (client.Options, error) {
	if !t.remote() {
		return client.Options{Socket: t.socket}, nil
	}
	if t.Token == "" {
		if t.name != "" {
			return client.Options{}, holt.Errorf(holt.Unauthenticated, "the context %s has no token", t.name).WithHint("add one with: holt context add %s --replace --server URL --token-file FILE", t.name)
		}
		return client.Options{}, holt.Errorf(holt.Unauthenticated, "%s is set, but not %s", holt.EnvServer, holt.EnvToken).
			WithHint("the admin's token is in the daemon's data directory, file token")
	}
	return client.Options{Host: t.Server, Token: t.Token, CA: []byte(t.CA), Fingerprint: t.Fingerprint}, nil
}

// mostSmall bounds a file with a token or certificates, bytes.
const mostSmall = 1 << 20

func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, here(err, path)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, mostSmall+1))
	if err == nil && len(data) > mostSmall {
		return nil, holt.Errorf(holt.InvalidArgument, "%s is larger than %d MiB", path, mostSmall>>20).WithHint("use a file with a token or certificates")
	}
	return data, here(err, path)
}
