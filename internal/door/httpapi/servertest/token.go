package servertest

import (
	"context"
	"slices"
	"time"

	"holt"
)

// tokens remembers tokens that let nobody in.
type tokens struct{ m *Memory }

func (n tokens) Create(_ context.Context, spec holt.TokenSpec, key string) (holt.NewToken, error) {
	secret := ""
	t, err := once(n.m, key, []any{"token.create", spec}, func() (holt.Token, error) {
		rights, err := holt.ParseScopes(spec.Scopes)
		if err == nil && spec.Name == "" {
			err = holt.Errorf(holt.InvalidArgument, "invalid token name")
		}
		if err != nil {
			return holt.Token{}, err
		}
		t := holt.Token{ID: holt.NewTokenID(), Name: spec.Name, Tenant: holt.DefaultTenant, Scopes: rights.Scopes(), Rights: rights, CreatedAt: time.Now().UTC()}
		if spec.LifeMS > 0 {
			at := t.CreatedAt.Add(time.Duration(spec.LifeMS) * time.Millisecond)
			t.ExpiresAt = &at
		}
		secret = "holt_of_" + string(t.ID)
		n.m.tokens = append(n.m.tokens, t)
		return t, nil
	})
	return holt.NewToken{Token: t, Secret: secret}, err
}

// find is called with the lock held.
func (n tokens) find(ref string) (int, error) {
	is := func(t holt.Token) bool { return string(t.ID) == ref || t.Name == ref }
	i := slices.IndexFunc(n.m.tokens, is)
	if i < 0 {
		return i, holt.Errorf(holt.NotFound, "there is no token %q", ref)
	}
	if slices.ContainsFunc(n.m.tokens[i+1:], is) && string(n.m.tokens[i].ID) != ref {
		return i, holt.Errorf(holt.Conflict, "several tokens are called %q", ref)
	}
	return i, nil
}

func (n tokens) Get(_ context.Context, ref string) (holt.Token, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	i, err := n.find(ref)
	if err != nil {
		return holt.Token{}, err
	}
	return n.m.tokens[i], nil
}

func (n tokens) List(context.Context) ([]holt.Token, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	return slices.Clone(n.m.tokens), nil
}

func (n tokens) Delete(_ context.Context, ref, key string) error {
	_, err := once(n.m, key, []any{"token.delete", ref}, func() (struct{}, error) {
		i, err := n.find(ref)
		if err == nil {
			n.m.tokens = slices.Delete(n.m.tokens, i, i+1)
		}
		return struct{}{}, err
	})
	return err
}
