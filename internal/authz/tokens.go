package authz

import (
	"context"
	"time"

	"holt"
	"holt/internal/api"
)

// mine is the right to tokens and SSH keys. It returns the caller, whose rights bound the ones that it may see and make.
func (w *warden) mine(ctx context.Context, u use) (holt.Actor, error) {
	a, credential := holt.ActorOf(ctx)
	if credential && a.Token == "" || a.Token != "" && u == change && a.Rights.ReadOnly {
		return a, denied(a)
	}
	return a, nil
}

func (w *warden) credentials(u use) rule {
	return func(ctx context.Context, _ any) (context.Context, error) {
		_, err := w.mine(ctx, u)
		return ctx, err
	}
}

// within reports whether a token may do nothing that the caller may not.
func within(a holt.Actor, t holt.Token) bool { return a.Person() || t.Rights.Within(a.Rights) }

// createToken puts ids in the place of names in scopes, and bounds the life of the token by that of the caller's.
func (w *warden) createToken(ctx context.Context, in *api.Body[holt.TokenSpec]) error {
	a, err := w.mine(ctx, change)
	if err != nil {
		return err
	}
	spec := &in.Body
	if spec.Scopes, err = w.ids(ctx, spec.Scopes); err != nil {
		return err
	}
	rights, err := holt.ParseScopes(spec.Scopes)
	if err != nil {
		return err
	}
	if !within(a, holt.Token{Rights: rights}) {
		return denied(a)
	}
	if a.Expires.IsZero() {
		return nil
	}
	left := time.Until(a.Expires).Milliseconds()
	if spec.LifeMS > left {
		return holt.Errorf(holt.Forbidden, "a token cannot make one that lives longer than itself").
			WithHint("it expires in %s", holt.ShortMS(left))
	}
	if spec.LifeMS == 0 {
		spec.LifeMS = max(1, left)
	}
	return nil
}

// ids puts ids in the place of names, of things that the caller covers.
func (w *warden) ids(ctx context.Context, scopes []holt.Scope) ([]holt.Scope, error) {
	out := make([]holt.Scope, 0, len(scopes))
	for _, s := range scopes {
		switch kind, ref, _ := holt.CutScope(s); kind {
		case "computer", "port":
			c, err := w.getComputer(ctx, ref)
			if err != nil {
				return nil, err
			}
			s = s.Named(string(c.ID))
		case "workspace":
			if err := w.any(ctx, ref); err != nil {
				return nil, err
			}
			ws, err := w.n.Workspaces.Get(ctx, ref)
			if err != nil {
				return nil, err
			}
			s = s.Named(string(ws.ID))
		}
		out = append(out, s)
	}
	return out, nil
}

func (w *warden) seesToken(ctx context.Context, t holt.Token) error {
	if a, _ := holt.ActorOf(ctx); !within(a, t) {
		return denied(a)
	}
	return nil
}

// token is the right to a token, which must not be able to do more than the caller.
func (w *warden) token(ctx context.Context, ref string, u use) error {
	a, err := w.mine(ctx, u)
	if err != nil {
		return err
	}
	t, err := w.n.Tokens.Get(ctx, ref)
	if err == nil && !within(a, t) {
		return holt.Errorf(holt.NotFound, "there is no token %q", holt.Clip(ref, 80)).WithHint("holt token list shows those there are")
	}
	return err
}

// deleteToken allows a caller to revoke its own token. A repeat of the call does not find the token.
func (w *warden) deleteToken(ctx context.Context, in *api.TokenKeyed) error {
	a, err := w.mine(ctx, change)
	if err != nil {
		return err
	}
	t, err := w.n.Tokens.Get(ctx, in.Token)
	if err != nil && holt.CodeOf(err) != holt.NotFound {
		return err
	}
	if err == nil && !within(a, t) {
		return holt.Errorf(holt.NotFound, "there is no token %q", holt.Clip(in.Token, 80)).WithHint("holt token list shows those there are")
	}
	return nil
}

// seesSSHKey hides keys that may do more than the caller.
func (w *warden) seesSSHKey(ctx context.Context, k holt.SSHKey) error {
	a, _ := holt.ActorOf(ctx)
	if a.Person() {
		return nil
	}
	ok, err := w.coversKey(ctx, a, k)
	if err == nil && !ok {
		err = denied(a)
	}
	return err
}

// coversKey reports whether a key may do nothing that the caller may not.
func (w *warden) coversKey(ctx context.Context, a holt.Actor, k holt.SSHKey) (bool, error) {
	switch k.Token {
	case a.Token:
		return true, nil
	case "": // all of its tenant
		return holt.Rights{}.Within(a.Rights), nil
	}
	t, err := w.n.Tokens.Get(ctx, string(k.Token))
	if holt.CodeOf(err) == holt.NotFound { // the token was revoked: the key is no longer accepted
		return a.Rights.All(), nil
	}
	return err == nil && within(a, t), err
}

// deleteSSHKey refuses a key that may do more than the caller, with the error of a key that does not exist.
func (w *warden) deleteSSHKey(ctx context.Context, in *api.SSHKeyKeyed) error {
	a, err := w.mine(ctx, change)
	if err != nil || a.Person() {
		return err
	}
	all, err := w.n.SSHKeys.List(ctx)
	if err != nil {
		return err
	}
	for _, k := range all {
		if string(k.ID) != in.ID && k.Fingerprint != in.ID && k.Name != in.ID {
			continue
		}
		ok, err := w.coversKey(ctx, a, k)
		if err != nil {
			return err
		}
		if !ok {
			return holt.Errorf(holt.NotFound, "there is no SSH key %q", holt.Clip(in.ID, 64)).WithHint("holt ssh-key list shows those there are")
		}
	}
	return nil
}
