package computer

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"holt"
	"holt/internal/guest/agent"
	"holt/internal/store/db"
)

// greet gives a guest its identity after a boot, also one of its own, or a resume from a snapshot.
func (l *live) greet(ctx context.Context, client *agent.Client, h agent.Hello) error {
	if l.guest == guestConfigured && (l.bootID == "" || l.bootID == h.BootID) {
		l.bootID = h.BootID
		return nil
	}
	id := l.identity()
	is, err := client.Configure(ctx, id)
	if err == nil {
		is.Now, err = setClock(is.Now, clockOf(ctx, client))
	}
	mustDiffer := l.guest.resumed() || l.machineID != "" // the fork of a stopped computer has booted
	switch {
	case err == nil && mustDiffer:
		err = isItself(id, is, time.Now())
	case err == nil && l.newKeys:
		err = hasOwnKeys(is)
	}
	refused := err != nil
	if err == nil {
		err = l.greeted(ctx, is)
		refused = holt.CodeOf(err) == holt.Conflict
	}
	if refused && mustDiffer && !broken(client) && ctx.Err() == nil {
		l.refuse(holt.Errorf(holt.Unavailable, "the guest cannot be given its own identity: %w", err))
	}
	if err == nil {
		l.guest, l.bootID, l.machineID, l.newKeys, l.diskSizeMB = guestConfigured, h.BootID, "", false, 0
	}
	return err
}

// identity is what the guest is to be.
func (l *live) identity() agent.Identity {
	entropy := make([]byte, 64)
	rand.Read(entropy) // never fails, see crypto/rand
	return agent.Identity{
		Hostname: l.hostname, Now: time.Now(), Entropy: entropy,
		Hosts:     []agent.HostEntry{{Address: "127.0.1.1", Names: []string{l.hostname}}},
		MachineID: l.machineID, NewHostKeys: l.newKeys, Restored: l.guest.resumed(), Repeats: l.guest == guestResumedAgain, DiskSizeMB: l.diskSizeMB,
	}
}

// isItself checks what the guest reports after it was given an identity.
func isItself(id agent.Identity, is agent.Identified, now time.Time) error {
	switch {
	case is.Hostname != id.Hostname:
		return fmt.Errorf("its host name is %q, not %q", is.Hostname, id.Hostname)
	case id.MachineID != "" && is.MachineID != id.MachineID:
		return fmt.Errorf("its machine id is %q, not %q", is.MachineID, id.MachineID)
	case is.Now.Before(id.Now.Add(-clockError)) || is.Now.After(now.Add(clockError)):
		return fmt.Errorf("its clock says %v, not %v", is.Now, now)
	case len(is.Drawn) == 0 && id.MachineID != "": // the local engine reports none, and its machines are not forked
		return fmt.Errorf("it reports no random bytes")
	}
	return hasOwnKeys(is)
}

// hasOwnKeys checks the SSH host keys of a guest that had to make new ones.
func hasOwnKeys(is agent.Identified) error {
	if len(is.HostKeys) == 0 && len(is.FormerKeys) > 0 {
		return fmt.Errorf("it has lost its SSH host keys")
	}
	for _, key := range is.HostKeys {
		if slices.Contains(is.FormerKeys, key) {
			return fmt.Errorf("its SSH host key %s is that of its parent", key)
		}
	}
	return nil
}

// identify records what a guest reports, as part of a transaction. It returns Conflict if the
// report shows the identity of another computer: the same random bytes, which must not repeat in
// the guest itself either, or an SSH host key of another guest. Only the log names the other
// computer: the caller may have no right to know it.
func (t table) identify(tx *db.Tx, id holt.ComputerID, is agent.Identified, log *slog.Logger) error {
	notFresh := func(what string, whose holt.ComputerID) error {
		log.Error("guest has the identity of another computer", "computer", id, "has", what, "of", whose)
		return holt.Errorf(holt.Conflict, "its identity is not fresh")
	}
	if len(is.Drawn) > 0 {
		drawn := hex.EncodeToString(is.Drawn)
		whose, err := t.identified(tx, drawn)
		if err != nil {
			return err
		}
		if whose != "" {
			return notFresh("what was drawn at random", whose)
		}
		if err := tx.Exec(`DELETE FROM identity WHERE computer = ? AND drawn`, id); err != nil {
			return err
		}
		if err := tx.Exec(`INSERT INTO identity (value, computer, drawn) VALUES (?, ?, 1)`, drawn, id); err != nil {
			return err
		}
	}
	if len(is.HostKeys) == 0 { // it was not told to make any
		return nil
	}
	for _, key := range is.HostKeys {
		if whose, err := t.identified(tx, key); err != nil {
			return err
		} else if whose != "" && whose != id {
			return notFresh("SSH host key "+key, whose)
		}
	}
	if err := tx.Exec(`DELETE FROM identity WHERE computer = ? AND NOT drawn`, id); err != nil {
		return err
	}
	for _, key := range is.HostKeys {
		if err := tx.Exec(`INSERT OR IGNORE INTO identity (value, computer, drawn) VALUES (?, ?, 0)`, key, id); err != nil {
			return err
		}
	}
	return nil
}

// identified returns the computer whose guest has reported a value, or "".
func (t table) identified(tx *db.Tx, value string) (id holt.ComputerID, err error) {
	err = tx.Query(`SELECT identity.computer FROM identity JOIN computer ON computer.id = identity.computer WHERE value = ?`,
		[]any{value}, func(row *db.Row) error {
			id = holt.ComputerID(row.Text(0))
			return nil
		})
	return id, err
}

// newMachineID returns a random machine ID, see machine-id(5).
func newMachineID() string {
	var b [16]byte
	rand.Read(b[:])                             // never fails, see crypto/rand
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // as of a random UUID
	return hex.EncodeToString(b[:])
}
