package artifact

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strings"
	"time"
	"unicode/utf8"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// linkSchema makes the table of links. A row with an artifact that is not visible is as none.
const linkSchema = `
CREATE TABLE artifact_link (
	id       TEXT PRIMARY KEY,
	artifact INTEGER NOT NULL,         -- its seq
	hash     BLOB NOT NULL,            -- SHA-256 of the secret, which is not kept
	file     TEXT NOT NULL,
	once     INTEGER NOT NULL,
	shown    INTEGER NOT NULL,         -- inline
	created  INTEGER NOT NULL,
	expires  INTEGER NOT NULL,
	maker    TEXT NOT NULL,            -- who created it, and
	token    TEXT NOT NULL,            -- the token; '': none
	used     INTEGER NOT NULL DEFAULT 0,
	last     INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX artifact_link_artifact ON artifact_link (artifact);
CREATE INDEX artifact_link_expires ON artifact_link (expires);
CREATE TRIGGER artifact_link_gone AFTER DELETE ON artifact BEGIN
	DELETE FROM artifact_link WHERE artifact = old.seq;
END;
`

const secretBytes = 20 // of a link

// Address returns the URLs of a link with a secret.
type Address func(link holt.ArtifactLink, secret string) (url, programURL string, err error)

// CreateLink makes a link to an artifact. A repeated call with the key returns it without its URL.
//
// Errors: NotFound, InvalidArgument (lifetime or file name), TooMany, Unavailable (no listener answers links).
func (s *Store) CreateLink(ctx context.Context, ref string, spec holt.ArtifactLinkSpec, key string) (holt.ArtifactLink, error) {
	var url, programURL string
	made, err := idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[holt.ArtifactLink]{
		Key: key, Method: "artifact.link", Request: []any{ref, spec},
		Act: func(ctx context.Context, claim *idempotency.Claim) (l holt.ArtifactLink, err error) {
			var secret [secretBytes]byte
			rand.Read(secret[:]) // never fails, see crypto/rand
			text := base64.RawURLEncoding.EncodeToString(secret[:])
			a, err := s.find(ctx, ref)
			if err == nil {
				l, err = s.newLink(ctx, a, spec)
			}
			if err == nil {
				url, programURL, err = s.cfg.Address(l, text)
			}
			if err == nil {
				err = s.insertLink(ctx, a, l, text, claim)
			}
			return l, err
		},
		Again: func(ctx context.Context, id string) (holt.ArtifactLink, error) { return s.link(ctx, ref, id) },
	})
	made.URL, made.ProgramURL = url, programURL
	return made, err
}

// newLink returns a link that is not stored yet. It expires no later than the token that makes it.
func (s *Store) newLink(ctx context.Context, a row, spec holt.ArtifactLinkSpec) (holt.ArtifactLink, error) {
	actor, _ := holt.ActorOf(ctx)
	l := holt.ArtifactLink{ID: holt.NewArtifactLinkID(), ArtifactID: a.ID, Bucket: a.Bucket, Name: a.Name, FileName: spec.FileName, Once: spec.Once, Inline: spec.Inline, By: by(ctx), TokenID: actor.Token}
	l.CreatedAt = s.cfg.Now().UTC()
	if spec.ExpiresInMS == 0 {
		spec.ExpiresInMS = holt.LinkLife.Milliseconds()
	}
	if spec.ExpiresInMS < 1000 || spec.ExpiresInMS > holt.MostLinkLife.Milliseconds() {
		return l, holt.Errorf(holt.InvalidArgument, "invalid lifetime %s of a link", holt.ShortMS(spec.ExpiresInMS)).WithHint("give one second to 365 days")
	}
	l.ExpiresAt = l.CreatedAt.Add(time.Duration(spec.ExpiresInMS) * time.Millisecond)
	if !actor.Expires.IsZero() && l.ExpiresAt.After(actor.Expires) {
		l.ExpiresAt = actor.Expires.UTC()
	}
	if l.FileName == "" {
		if l.FileName = a.FileName(); !fileName(l.FileName) {
			l.FileName = string(a.ID)
		}
	}
	if !fileName(l.FileName) {
		return l, holt.Errorf(holt.InvalidArgument, "invalid file name %q of a link", holt.Clip(l.FileName, 80)).
			WithHint("use 1 to %d bytes of UTF-8 without slashes and control characters, such as report.pdf", holt.MostLinkName)
	}
	return l, nil
}

// fileName reports whether a text can be the last part of a URL's path and the name of a download.
func fileName(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= holt.MostLinkName && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return r == '/' || r == '\\' || r < ' ' || r >= 0x7f && r < 0xa0 })
}

func (s *Store) insertLink(ctx context.Context, a row, l holt.ArtifactLink, secret string, claim *idempotency.Claim) error {
	hash := sha256.Sum256([]byte(secret))
	return s.write(ctx, func(tx *db.Tx) error {
		if err := claim.Bind(tx, string(l.ID)); err != nil {
			return err
		}
		there, many := false, int64(0)
		err := tx.Query(`SELECT (SELECT count(*) FROM artifact_link WHERE artifact = a.seq AND expires > ?) FROM artifact a WHERE a.seq = ? AND `+visible, []any{l.CreatedAt.UnixNano(), a.seq},
			func(r *db.Row) error { there, many = true, r.Int64(0); return nil })
		switch {
		case err != nil:
			return err
		case !there:
			return holt.Errorf(holt.NotFound, "the artifact %s was deleted", a.ID)
		case many >= holt.MostArtifactLinks:
			return holt.Errorf(holt.TooMany, "the artifact %s/%s has %d links", a.Bucket, a.Name, many).WithHint("revoke some: holt artifact unlink")
		}
		return tx.Exec(`INSERT INTO artifact_link (id, artifact, hash, file, once, shown, created, expires, maker, token) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			l.ID, a.seq, hash[:], l.FileName, l.Once, l.Inline, l.CreatedAt.UnixNano(), l.ExpiresAt.UnixNano(), l.By, l.TokenID)
	})
}

// linkRow is a link with the hash of its secret.
type linkRow struct {
	holt.ArtifactLink
	hash [sha256.Size]byte
}

func links(tx *db.Tx, condition string, args ...any) (list []linkRow, err error) {
	err = tx.Query(`SELECT l.id, a.id, b.name, a.name, l.hash, l.file, l.once, l.shown, l.created, l.expires, l.maker, l.token, l.used, l.last
		FROM artifact_link l CROSS JOIN artifact a ON a.seq = l.artifact CROSS JOIN bucket b ON b.id = a.bucket WHERE `+visible+` AND `+condition, args, func(r *db.Row) error {
		l := linkRow{ArtifactLink: holt.ArtifactLink{ID: holt.ArtifactLinkID(r.Text(0)), ArtifactID: holt.ArtifactID(r.Text(1)), Bucket: r.Text(2), Name: r.Text(3), FileName: r.Text(5), Once: r.Int64(6) != 0, Inline: r.Int64(7) != 0,
			CreatedAt: time.Unix(0, r.Int64(8)).UTC(), ExpiresAt: time.Unix(0, r.Int64(9)).UTC(), By: r.Text(10), TokenID: holt.TokenID(r.Text(11)), Used: r.Int64(12)}}
		copy(l.hash[:], r.Bytes(4))
		if last := r.Int64(13); last != 0 {
			at := time.Unix(0, last).UTC()
			l.LastUsedAt = &at
		}
		list = append(list, l)
		return nil
	})
	return list, err
}

// Links returns the links of an artifact that have not expired, in any order.
func (s *Store) Links(ctx context.Context, ref string) ([]holt.ArtifactLink, error) {
	a, err := s.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	out := []holt.ArtifactLink{}
	err = s.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		list, err := links(tx, `l.artifact = ? AND l.expires > ?`, a.seq, s.cfg.Now().UnixNano())
		for _, l := range list {
			out = append(out, l.ArtifactLink)
		}
		return err
	})
	return out, err
}

// link returns a link of an artifact.
func (s *Store) link(ctx context.Context, ref, id string) (holt.ArtifactLink, error) {
	all, err := s.Links(ctx, ref)
	for _, l := range all {
		if string(l.ID) == id {
			return l, nil
		}
	}
	if err == nil {
		err = holt.Errorf(holt.NotFound, "the artifact has no link %s", holt.Clip(id, 80)).WithHint("holt artifact links shows its links; those that have expired are removed")
	}
	return holt.ArtifactLink{}, err
}

// DeleteLink revokes a link of an artifact.
func (s *Store) DeleteLink(ctx context.Context, ref, id, key string) error {
	_, err := idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[struct{}]{
		Key: key, Method: "artifact.unlink", Request: []any{ref, id}, Removes: true,
		Act: func(ctx context.Context, _ *idempotency.Claim) (none struct{}, err error) {
			if _, err = s.link(ctx, ref, id); err != nil {
				return none, err
			}
			return none, s.write(ctx, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM artifact_link WHERE id = ?`, id) })
		},
	})
	return err
}

// errNoLink is the error of a link that is unknown, used, revoked or expired, and of a wrong secret.
var errNoLink = holt.Errorf(holt.NotFound, "the link does not work")

// OpenLink returns a link and its artifact by the link's secret. The time that it takes does not depend on the secret's bytes.
//
// Errors: NotFound, which is the same for all links that do not work.
func (s *Store) OpenLink(ctx context.Context, id holt.ArtifactLinkID, secret string) (holt.ArtifactLink, holt.Artifact, error) {
	var l linkRow // of an unknown link, it has 32 zero bytes, which no secret hashes to
	var a row
	err := s.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		list, err := links(tx, `l.id = ?`, id)
		if err != nil || len(list) == 0 {
			return err
		}
		l = list[0]
		all, err := rows(tx, `WHERE a.id = ?`, l.ArtifactID)
		if len(all) > 0 {
			a = all[0]
		}
		return err
	})
	hash := sha256.Sum256([]byte(secret))
	right := subtle.ConstantTimeCompare(hash[:], l.hash[:]) == 1
	if err == nil && (!right || l.Once && l.Used > 0 || !s.cfg.Now().Before(l.ExpiresAt)) {
		err = errNoLink
	}
	if err != nil {
		return holt.ArtifactLink{}, holt.Artifact{}, err
	}
	return l.ArtifactLink, a.Artifact, nil
}

// UseLink records a download by a link before its first byte is sent. Of a link for one download only the first call
// succeeds; its record survives power loss.
//
// Errors: NotFound (it does not work any more).
func (s *Store) UseLink(ctx context.Context, l holt.ArtifactLink) error {
	write := s.cfg.DB.Write
	if l.Once {
		write = s.write
	}
	used, now := false, s.cfg.Now().UnixNano()
	err := write(ctx, func(tx *db.Tx) error {
		return tx.Query(`UPDATE artifact_link SET used = used + 1, last = ?1 WHERE id = ?2 AND expires > ?1 AND NOT (once AND used) RETURNING 1`, []any{now, l.ID}, func(*db.Row) error { used = true; return nil })
	})
	switch {
	case err == nil && !used:
		err = errNoLink
	case err != nil && !l.Once: // it would only be counted; a full disk of the host prevents no download
		s.cfg.Log.WarnContext(ctx, "a download by a link is not counted", "link", l.ID, "err", err)
		err = nil
	}
	if err == nil {
		err = s.point("link/used")
	}
	return err
}

// expire removes links that have expired.
func (s *Store) expire() {
	err := s.cfg.DB.Write(s.ctx, func(tx *db.Tx) error {
		return tx.Exec(`DELETE FROM artifact_link WHERE expires <= ?`, s.cfg.Now().UnixNano())
	})
	if err != nil && s.ctx.Err() == nil {
		s.cfg.Log.Error("expired links are not removed; it is tried again later", "again_in", again, "err", err)
	}
}
