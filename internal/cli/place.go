package cli

import (
	"cmp"
	"os"
	"path/filepath"

	"holt"
	"holt/client"
)

// rootDir is the data directory of root's daemon, and of the Debian package's.
const rootDir = "/var/lib/holt"

// place returns where the daemon of this call keeps its things.
func (a *app) place() (Place, error) {
	dir := cmp.Or(a.dataDir, a.getenv(holt.EnvDataDir))
	if dir == "" {
		if os.Geteuid() == 0 {
			dir = rootDir
		} else {
			home, err := os.UserHomeDir()
			if err != nil {
				return Place{}, holt.Errorf(holt.InvalidArgument, "no data directory: %w", err).WithHint("set %s", holt.EnvDataDir)
			}
			dir = filepath.Join(home, ".local/share/holt")
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Place{}, err
	}
	images := filepath.Join(dir, "images")
	if given := a.getenv(holt.EnvImageDir); given != "" {
		if images, err = filepath.Abs(given); err != nil {
			return Place{}, err
		}
	}
	return Place{DataDir: dir, ImageDir: images}, nil
}

// remote says that the daemon is called over TCP, and may be elsewhere.
func (a *app) remote() bool {
	t, err := a.target()
	return err == nil && t.remote()
}

// socket returns the path of the daemon's socket: --data-dir goes before
// HOLT_SOCKET, and that before HOLT_DATA_DIR.
func (a *app) socket() (string, error) {
	if s := a.getenv(holt.EnvSocket); s != "" && a.dataDir == "" {
		return s, nil
	}
	at, err := a.place()
	return filepath.Join(at.DataDir, "holt.sock"), err
}

// connect returns a client of the daemon; it does no I/O but for reading contexts.
func (a *app) connect() (*client.Client, error) {
	tenant := cmp.Or(a.tenant, a.getenv(holt.EnvTenant))
	if _, err := holt.ParseTenant(tenant); err != nil {
		return nil, err
	}
	t, err := a.target()
	if err != nil {
		return nil, err
	}
	opt, err := t.options()
	if err != nil {
		return nil, err
	}
	opt.Tenant = tenant
	a.caller, err = client.New(opt)
	return a.caller, err
}
