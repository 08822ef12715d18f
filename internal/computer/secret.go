package computer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/network"
	"holt/internal/store/db"
)

// Secrets are the host secrets of computers: what their proxies add to requests. No call returns a
// value.
type Secrets struct{ *registry }

func (s *Store) Secrets() *Secrets { return s.secrets }

// List returns a computer's secrets sorted by name. Errors: NotFound, Unsupported (the engine has
// no network per computer).
func (n *Secrets) List(ctx context.Context, ref string) ([]holt.ComputerSecret, error) {
	r, err := n.table.find(ctx, ref)
	if err == nil {
		err = n.cfg.hasNetworks(n.cfg.engine(r))
	}
	if err != nil {
		return nil, err
	}
	all, err := n.cfg.secretsOf(ctx, r.ID)
	return all.shown, err
}

// Set adds or replaces a secret. It applies to requests that begin after Set returns; running
// programs learn of the proxy only when they are restarted.
//
// Errors: NotFound, InvalidArgument, Unsupported, Unavailable when its network or guest does not
// answer: then it applies as soon as they do.
func (n *Secrets) Set(ctx context.Context, ref, name string, secret holt.HostSecret) (shown holt.ComputerSecret, err error) {
	if _, err := holt.ParseSecretName(name); err != nil {
		return shown, err
	}
	if err := network.CheckSecrets([]holt.HostSecret{secret}); err != nil {
		return shown, err
	}
	shown = secret.Shown(name, time.Now().UTC())
	r, err := n.change(ctx, ref, func(tx *db.Tx, r record) error {
		if err := authorize(tx, r); err != nil {
			return err
		}
		err := tx.Exec(`INSERT INTO secret VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (computer, name) DO UPDATE SET
			host = excluded.host, header = excluded.header, placeholder = excluded.placeholder, plain = excluded.plain, value = excluded.value, at = excluded.at`,
			r.ID, name, secret.Host, secret.Header, secret.Placeholder, secret.Plain, secret.Value, shown.SetAt.UnixNano())
		if err != nil {
			return err
		}
		all, err := secretsIn(tx, r.ID)
		if err != nil {
			return err
		}
		return network.CheckSecrets(all.given.Hosts) // there may be too many
	})
	if err == nil {
		n.log.InfoContext(ctx, "host secret set", "computer", r.ID, "name", r.Name, "secret", name, "host", secret.Host)
	}
	return shown, err
}

// Delete removes a secret at once. Errors: NotFound, Unsupported, Unavailable as of Set.
func (n *Secrets) Delete(ctx context.Context, ref, name, key string) error {
	_, err := idempotency.Once(ctx, n.cfg.Keys, idempotency.Call[struct{}]{
		Key: key, Method: "secret.delete", Request: [2]string{ref, name}, Removes: true,
		Act: func(ctx context.Context, _ *idempotency.Claim) (struct{}, error) {
			return struct{}{}, n.delete(ctx, ref, name)
		},
	})
	return err
}

func (n *Secrets) delete(ctx context.Context, ref, name string) error {
	r, err := n.change(ctx, ref, func(tx *db.Tx, r record) error {
		_, found, err := textOf(tx, `SELECT name FROM secret WHERE computer = ? AND name = ?`, r.ID, name)
		if err == nil && !found {
			err = holt.Errorf(holt.NotFound, "%s has no secret %q", r.Name, clip(name)).WithHint("list its secrets with holt computer secret list %s", r.Name)
		}
		if err != nil {
			return err
		}
		return tx.Exec(`DELETE FROM secret WHERE computer = ? AND name = ?`, r.ID, name)
	})
	if err == nil {
		n.log.InfoContext(ctx, "host secret deleted", "computer", r.ID, "name", r.Name, "secret", name)
	}
	return err
}

// change changes a computer's secrets on record, then in its network, then in its guest. After each
// step the next network, session or daemon can continue.
func (n *Secrets) change(ctx context.Context, ref string, act func(*db.Tx, record) error) (record, error) {
	r, unlock, err := n.hold(ctx, ref)
	if err != nil {
		return r, err
	}
	defer unlock()
	if err := n.cfg.hasNetworks(n.cfg.engine(r)); err != nil {
		return r, err
	}
	if err := writeSync(ctx, n.cfg.DB, func(tx *db.Tx) error { return act(tx, r) }); err != nil {
		return r, err
	}
	if err := n.cfg.failpoint("secret/network"); err != nil {
		return r, err
	}
	all, err := n.cfg.secretsOf(ctx, r.ID)
	if err != nil {
		return r, err
	}
	if err := n.cfg.Networks.SetSecrets(ctx, n.cfg.dir(r.ID), all.given); err != nil && !errors.Is(err, machine.ErrGone) { // it was never started
		return r, hosterror.Full(err)
	}
	if err := n.cfg.failpoint("secret/guest"); err != nil {
		return r, err
	}
	l := n.machines.live(r.ID)
	if l == nil {
		return r, nil
	}
	return r, l.do(ctx, l.limits.Answer, true, l.sendProxy)
}

// authorize gives a computer a CA, as part of a transaction, if it has none.
func authorize(tx *db.Tx, r record) error {
	_, found, err := textOf(tx, `SELECT computer FROM authority WHERE computer = ?`, r.ID)
	if err != nil || found {
		return err
	}
	certificate, key, err := network.NewAuthority(r.Name)
	if err != nil {
		return fmt.Errorf("make a CA: %w", err)
	}
	return tx.Exec(`INSERT INTO authority VALUES (?, ?, ?)`, r.ID, certificate, key)
}

type secretsRecord struct {
	given network.Secrets
	shown []holt.ComputerSecret
}

func (c *Config) secretsOf(ctx context.Context, id holt.ComputerID) (out secretsRecord, err error) {
	err = read(ctx, c.DB, func(tx *db.Tx) error {
		out, err = secretsIn(tx, id)
		return err
	})
	if err != nil {
		return out, fmt.Errorf("read secrets: %w", err)
	}
	return out, nil
}

func secretsIn(tx *db.Tx, id holt.ComputerID) (out secretsRecord, err error) {
	out.shown = []holt.ComputerSecret{}
	err = tx.Query(`SELECT certificate, key FROM authority WHERE computer = ?`, []any{id}, func(row *db.Row) error {
		out.given.Certificate, out.given.Key = row.Text(0), row.Text(1)
		return nil
	})
	if err != nil {
		return out, err
	}
	err = tx.Query(`SELECT name, host, header, placeholder, plain, value, at FROM secret WHERE computer = ? ORDER BY name`, []any{id}, func(row *db.Row) error {
		one := holt.HostSecret{Host: row.Text(1), Header: row.Text(2), Placeholder: row.Text(3), Plain: row.Int64(4) != 0, Value: row.Text(5)}
		out.given.Hosts = append(out.given.Hosts, one)
		out.shown = append(out.shown, one.Shown(row.Text(0), time.Unix(0, row.Int64(6)).UTC()))
		return nil
	})
	return out, err
}

// inheritSecrets gives a fork its parent's CA, which its programs trust, and the parent's secrets
// if requested; a new computer that uses another one's secrets gets a CA of its own.
func inheritSecrets(tx *db.Tx, r *record) error {
	from := r.secretsOf
	var err error
	switch {
	case from != "":
		err = authorize(tx, *r)
	case r.Parent != nil:
		err = tx.Exec(`INSERT INTO authority SELECT ?, certificate, key FROM authority WHERE computer = ?`, r.ID, r.Parent.ID)
		if r.withSecrets {
			from = r.Parent.ID
		}
	}
	if err != nil || from == "" {
		return err
	}
	return tx.Exec(`INSERT INTO secret SELECT ?, name, host, header, placeholder, plain, value, at FROM secret WHERE computer = ?`, r.ID, from)
}

// writeSecrets puts a computer's secrets where its network reads them.
func (c *Config) writeSecrets(ctx context.Context, e machine.Engine, id holt.ComputerID) error {
	if !c.ownNetworks(e) {
		return nil
	}
	all, err := c.secretsOf(ctx, id)
	if err != nil {
		return err
	}
	return hosterror.Full(c.Networks.WriteSecrets(c.dir(id), all.given))
}
