package cli

import (
	"cmp"
	"os"
	"path/filepath"

	"holt"
	"holt/client"
)

// place returns where the daemon of this call keeps its things.
func (a *app) place() (Place, error) {
	dir := cmp.Or(a.dataDir, a.getenv(holt.EnvDataDir))
	if dir == "" {
		if os.Geteuid() == 0 {
			dir = "/var/lib/holt"
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
func (a *app) remote() bool { return a.dataDir == "" && a.getenv(holt.EnvHost) != "" }

// socket returns the path of the daemon's socket: --data-dir goes before
// HOLT_SOCKET, and that before HOLT_DATA_DIR.
func (a *app) socket() (string, error) {
	if s := a.getenv(holt.EnvSocket); s != "" && a.dataDir == "" {
		return s, nil
	}
	at, err := a.place()
	return filepath.Join(at.DataDir, "holt.sock"), err
}

// connect returns a client of the daemon; it does no I/O.
func (a *app) connect() (*client.Client, error) {
	tenant := cmp.Or(a.tenant, a.getenv(holt.EnvTenant))
	if _, err := holt.ParseTenant(tenant); err != nil {
		return nil, err
	}
	if a.remote() {
		token := a.getenv(holt.EnvToken)
		if token == "" {
			return nil, holt.Errorf(holt.Unauthenticated, "%s is set, but not %s", holt.EnvHost, holt.EnvToken).
				WithHint("the daemon printed the path of its first token when it began to listen")
		}
		return client.New(client.Options{Host: a.getenv(holt.EnvHost), Token: token, Tenant: tenant})
	}
	socket, err := a.socket()
	if err != nil {
		return nil, err
	}
	return client.New(client.Options{Socket: socket, Tenant: tenant})
}
