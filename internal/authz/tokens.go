package authz

import (
	"context"
	"time"

	"holt"
	"holt/internal/api"
)

// ownCredentials checks a call about tokens or SSH keys. It returns the caller: its rights are the maximum of those
// that it may see and create.
func (g *guard) ownCredentials(ctx context.Context, op operation) (holt.Actor, error) {
	a, credential := holt.ActorOf(ctx)
	if credential && a.Token == "" || a.Token != "" && op == write && a.Rights.ReadOnly {
		return a, forbidden(a)
	}
	return a, nil
}

// credentials makes a rule of ownCredentials.
func (g *guard) credentials(op operation) rule {
	return func(ctx context.Context, _ any) (context.Context, error) {
		_, err := g.ownCredentials(ctx, op)
		return ctx, err
	}
}

// within reports whether a token has no right that the caller lacks.
func within(a holt.Actor, t holt.Token) bool { return a.Person() || t.Rights.Within(a.Rights) }

// createToken replaces names in scopes by ids. The token expires no later than the caller's.
func (g *guard) createToken(ctx context.Context, in *api.Body[holt.TokenSpec]) error {
	a, err := g.ownCredentials(ctx, write)
	if err != nil {
		return err
	}
	spec := &in.Body
	if spec.Scopes, err = g.resolveScopes(ctx, spec.Scopes); err != nil {
		return err
	}
	rights, err := holt.ParseScopes(spec.Scopes)
	if err != nil {
		return err
	}
	if !within(a, holt.Token{Rights: rights}) {
		return forbidden(a)
	}
	if a.Expires.IsZero() {
		return nil
	}
	left := time.Until(a.Expires).Milliseconds()
	if spec.LifeMS > left {
		return holt.Errorf(holt.Forbidden, "a token cannot create one that expires later than itself").
			WithHint("the token of this call expires in %s", holt.ShortMS(left))
	}
	if spec.LifeMS == 0 {
		spec.LifeMS = max(1, left)
	}
	return nil
}

// resolveScopes replaces names by ids. The caller must cover the objects.
func (g *guard) resolveScopes(ctx context.Context, scopes []holt.Scope) ([]holt.Scope, error) {
	out := make([]holt.Scope, 0, len(scopes))
	for _, s := range scopes {
		switch kind, ref, _ := holt.CutScope(s); kind {
		case "computer", "port":
			c, err := g.getComputer(ctx, ref)
			if err != nil {
				return nil, err
			}
			s = s.Named(string(c.ID))
		case "workspace":
			if err := g.workspacePart(ctx, ref); err != nil {
				return nil, err
			}
			ws, err := g.n.Workspaces.Get(ctx, ref)
			if err != nil {
				return nil, err
			}
			s = s.Named(string(ws.ID))
		}
		out = append(out, s)
	}
	return out, nil
}

func (g *guard) seesToken(ctx context.Context, t holt.Token) error {
	if a, _ := holt.ActorOf(ctx); !within(a, t) {
		return forbidden(a)
	}
	return nil
}

// token checks a call about one token. A token with rights that the caller lacks is NotFound.
func (g *guard) token(ctx context.Context, ref string, op operation) error {
	a, err := g.ownCredentials(ctx, op)
	if err != nil {
		return err
	}
	t, err := g.n.Tokens.Get(ctx, ref)
	if err == nil && !within(a, t) {
		return holt.Errorf(holt.NotFound, "there is no token %q", holt.Clip(ref, 80)).WithHint("holt token list shows all tokens")
	}
	return err
}

// deleteToken permits a caller to revoke its own token. A missing token passes, so that a repeat of the call can
// return the recorded answer.
func (g *guard) deleteToken(ctx context.Context, in *api.TokenKeyed) error {
	a, err := g.ownCredentials(ctx, write)
	if err != nil {
		return err
	}
	t, err := g.n.Tokens.Get(ctx, in.Token)
	if err != nil && holt.CodeOf(err) != holt.NotFound {
		return err
	}
	if err == nil && !within(a, t) {
		return holt.Errorf(holt.NotFound, "there is no token %q", holt.Clip(in.Token, 80)).WithHint("holt token list shows all tokens")
	}
	return nil
}

// seesS3Key hides keys of tokens with rights that the caller lacks.
func (g *guard) seesS3Key(ctx context.Context, k holt.S3Key) error {
	t, err := g.n.Tokens.Get(ctx, string(k.Token))
	if err == nil {
		err = g.seesToken(ctx, t)
	}
	return err
}

// deleteS3Key returns NotFound for a key of a token with rights that the caller lacks. A missing key passes, as of deleteToken.
func (g *guard) deleteS3Key(ctx context.Context, in *api.S3KeyKeyed) error {
	if _, err := g.ownCredentials(ctx, write); err != nil {
		return err
	}
	k, err := g.n.S3Keys.Get(ctx, in.ID)
	if err == nil {
		err = g.seesS3Key(ctx, k)
	} else if holt.CodeOf(err) == holt.NotFound {
		return nil
	}
	if holt.CodeOf(err) == holt.Forbidden {
		return holt.Errorf(holt.NotFound, "there is no S3 key %q", holt.Clip(in.ID, 80)).WithHint("holt token s3-keys shows all keys")
	}
	return err
}

// seesSSHKey hides keys with rights that the caller lacks.
func (g *guard) seesSSHKey(ctx context.Context, k holt.SSHKey) error {
	a, _ := holt.ActorOf(ctx)
	if a.Person() {
		return nil
	}
	ok, err := g.coversKey(ctx, a, k)
	if err == nil && !ok {
		err = forbidden(a)
	}
	return err
}

// coversKey reports whether a key has no right that the caller lacks.
func (g *guard) coversKey(ctx context.Context, a holt.Actor, k holt.SSHKey) (bool, error) {
	switch k.Token {
	case a.Token:
		return true, nil
	case "": // a key of a person covers all of its tenant
		return holt.Rights{}.Within(a.Rights), nil
	}
	t, err := g.n.Tokens.Get(ctx, string(k.Token))
	if holt.CodeOf(err) == holt.NotFound { // the token was revoked: the key is no longer accepted
		return a.Rights.All(), nil
	}
	return err == nil && within(a, t), err
}

// deleteSSHKey returns NotFound for a key with rights that the caller lacks.
func (g *guard) deleteSSHKey(ctx context.Context, in *api.SSHKeyKeyed) error {
	a, err := g.ownCredentials(ctx, write)
	if err != nil || a.Person() {
		return err
	}
	all, err := g.n.SSHKeys.List(ctx)
	if err != nil {
		return err
	}
	for _, k := range all {
		if string(k.ID) != in.ID && k.Fingerprint != in.ID && k.Name != in.ID {
			continue
		}
		ok, err := g.coversKey(ctx, a, k)
		if err != nil {
			return err
		}
		if !ok {
			return holt.Errorf(holt.NotFound, "there is no SSH key %q", holt.Clip(in.ID, 64)).WithHint("holt ssh-key list shows all keys")
		}
	}
	return nil
}
