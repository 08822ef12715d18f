package sshd

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"golang.org/x/crypto/ssh"

	"holt"
	"holt/internal/access"
)

// caller is an authenticated client.
type caller struct {
	who   string // for counts and the log: a token, a key, or person
	how   string // key, token or api
	actor *holt.Actor
	agent bool                                                        // it may forward an agent
	hold  func(context.Context) (context.Context, context.CancelFunc) // returns a context that ends with the rights; nil: they do not end
	key   *holt.SSHKey
}

// tenant returns the tenant in which the caller's computer names are looked up.
func (c *caller) tenant() string {
	if c.actor == nil {
		return holt.DefaultTenant
	}
	return cmp.Or(c.actor.Tenant, holt.DefaultTenant)
}

// person reports whether the caller is a person at the daemon's socket, for any tenant, or has a key that such a person
// added.
func (c *caller) person() bool { return c.actor == nil || c.how == "api" && c.actor.Person() }

// shares returns the limits that apply to a caller: all in total and each for one caller. A tenant, which can make any
// number of tokens and keys, has at most half of all. The person's share is separate, so that tenants cannot use it up.
func (c *caller) shares(all, each int) []access.Share {
	own := access.Share{Of: " of one caller (" + c.who + ")", Most: each}
	if c.person() {
		return []access.Share{own, {Of: " of the person whose daemon it is", Most: all / 2}}
	}
	return []access.Share{own, {Of: " of the tenant " + c.tenant(), Most: all / 2}, {Most: all}}
}

type (
	callerKey     struct{} // *caller, of a connection
	candidatesKey struct{} // []*caller, if the client proves to have the key
)

// context returns a context with the caller's actor, which ends with its rights.
func (c *caller) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.actor != nil {
		ctx = holt.WithActor(ctx, *c.actor)
	}
	if c.hold == nil {
		return context.WithCancel(ctx)
	}
	return c.hold(ctx)
}

// errRefused is the only error that an unauthenticated client gets.
var errRefused = errors.New("refused")

// mostSecret bounds a password; tokens are shorter.
const mostSecret = 256

// config returns the configuration of a handshake, without authentication.
func (g *Gate) config() *ssh.ServerConfig {
	c := &ssh.ServerConfig{
		ServerVersion: "SSH-2.0-holt", MaxAuthTries: authTries,
		PublicKeyAuthAlgorithms: []string{
			ssh.KeyAlgoED25519, ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256,
			ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSASHA512,
		},
	}
	c.KeyExchanges = []string{
		ssh.KeyExchangeMLKEM768X25519, ssh.KeyExchangeCurve25519, ssh.KeyExchangeECDHP256, ssh.KeyExchangeECDHP384, ssh.KeyExchangeECDHP521,
	}
	// AES-GCM is several times as fast with the processor's AES instructions.
	c.Ciphers = []string{ssh.CipherAES128GCM, ssh.CipherAES256GCM, ssh.CipherChaCha20Poly1305, ssh.CipherAES128CTR, ssh.CipherAES256CTR}
	c.MACs = []string{ssh.HMACSHA256ETM, ssh.HMACSHA512ETM}
	c.AddHostKey(g.hostKey)
	return c
}

// authConfig is config with authentication by key or token. It acquires the slot of the connection.
func (g *Gate) authConfig(ctx context.Context, in *connSlot) *ssh.ServerConfig {
	c := g.config()
	c.PreAuthConnCallback = func(pre ssh.ServerPreAuthConn) { in.tell = pre.SendAuthBanner }
	c.PublicKeyCallback = func(m ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		return g.admit(m, func(login) (any, any, error) {
			all, err := g.byKey(ctx, key)
			return candidatesKey{}, all, err
		})
	}
	c.VerifiedPublicKeyCallback = func(m ssh.ConnMetadata, _ ssh.PublicKey, p *ssh.Permissions, _ string) (*ssh.Permissions, error) {
		return g.admit(m, func(at login) (any, any, error) {
			who, err := g.chooseTenant(ctx, p.ExtraData[candidatesKey{}].([]*caller), at)
			if err == nil {
				in.acquire(g, who)
			}
			return callerKey{}, who, err
		})
	}
	c.PasswordCallback = func(m ssh.ConnMetadata, secret []byte) (*ssh.Permissions, error) {
		p, err := g.admit(m, func(at login) (any, any, error) {
			who, err := g.byToken(ctx, secret)
			if err == nil && at.tenant != "" && at.tenant != who.tenant() {
				err = errElsewhere
			}
			if err == nil {
				in.acquire(g, who)
			}
			return callerKey{}, who, err
		})
		if err != nil {
			g.failures.failed(place(m.RemoteAddr().String()))
		}
		return p, err
	}
	return c
}

// errElsewhere is the error of a token with the name of another tenant.
var errElsewhere = holt.Errorf(holt.Unauthenticated, "the token is not of this tenant")

// admit checks the user name and calls find, whose result is stored with the connection.
func (g *Gate) admit(m ssh.ConnMetadata, find func(login) (key, who any, err error)) (*ssh.Permissions, error) {
	at, err := parseName(m.User())
	if err != nil {
		return nil, errRefused
	}
	key, who, err := find(at)
	var told *ssh.BannerError
	switch {
	case errors.As(err, &told):
		return nil, told
	case err != nil:
		if holt.CodeOf(err) != holt.Unauthenticated {
			g.log.Error("authenticate an SSH client", "from", m.RemoteAddr().String(), "err", err)
		}
		return nil, errRefused
	}
	return &ssh.Permissions{ExtraData: map[any]any{key: who}}, nil
}

// chooseTenant chooses among the tenants that have added a client's key. Any tenant can add a public key. So if several
// have, the client must give the tenant or the computer's id: otherwise it could log into another tenant's computer with
// the same name. A person at the daemon's socket who added the key comes first, and their names are of the default
// tenant. The client has proved to have the key, so the error tells the tenants.
func (g *Gate) chooseTenant(ctx context.Context, all []*caller, at login) (*caller, error) {
	var in []*caller
	var tenants []string
	for _, c := range all {
		if tenants = append(tenants, c.tenant()); at.tenant == "" || at.tenant == c.tenant() {
			in = append(in, c)
		}
	}
	switch {
	case len(in) == 0:
		return nil, &ssh.BannerError{Err: errRefused, Message: "holt: this key is not on record in the tenant " + at.tenant + "\r\n"}
	case len(in) == 1 || in[0].actor == nil:
		return in[0], nil
	}
	if _, err := holt.ParseComputerID(at.computer); err != nil {
		return nil, &ssh.BannerError{Err: errRefused, Message: "holt: this key is on record in several tenants: " + strings.Join(tenants, ", ") +
			"; say which, as " + at.computer + "." + tenants[0] + "@HOST, or give the computer's id for its name\r\n"}
	}
	for _, c := range in {
		if _, err := g.opt.Computers.Get(holt.WithActor(ctx, *c.actor), at.computer); err == nil {
			return c, nil
		}
	}
	return in[0], nil // the computer is not found later
}

func (g *Gate) byToken(ctx context.Context, secret []byte) (*caller, error) {
	if len(secret) > mostSecret {
		return nil, holt.Errorf(holt.Unauthenticated, "the token is not valid")
	}
	token, err := g.opt.Tokens.Check(ctx, string(secret))
	if err != nil {
		return nil, err
	}
	return g.ofToken(token, "token"), nil
}

// ofToken returns the caller of a token.
func (g *Gate) ofToken(token access.Token, how string) *caller {
	actor := token.Actor()
	return &caller{who: string(token.ID), how: how, actor: &actor, hold: func(ctx context.Context) (context.Context, context.CancelFunc) {
		return g.opt.Tokens.Hold(ctx, token)
	}}
}

// byKey finds the callers of a key, at least one. The client has not proved yet to have the private key, so the result
// must not be revealed.
func (g *Gate) byKey(ctx context.Context, key ssh.PublicKey) (all []*caller, err error) {
	records, err := g.keys.find(ctx, key)
	if err != nil {
		return nil, err
	}
	refused := error(holt.Errorf(holt.Unauthenticated, "the key is not on record"))
	for _, one := range records {
		c, err := g.ofKey(ctx, one)
		switch {
		case err == nil:
			all = append(all, c)
		case holt.CodeOf(err) != holt.Unauthenticated:
			return nil, err
		default:
			refused = err
		}
	}
	if len(all) == 0 {
		return nil, refused
	}
	return all, nil
}

// ofKey returns the caller of a key on record.
func (g *Gate) ofKey(ctx context.Context, one holt.SSHKey) (*caller, error) {
	c := &caller{}
	switch {
	case one.Token != "":
		token, err := g.token(ctx, one.Token)
		if err != nil {
			return nil, err
		}
		c = g.ofToken(token, "key")
		c.actor.Tenant = one.Tenant // an admin can add a key for another tenant
	case one.Tenant != "":
		c.actor = &holt.Actor{Name: one.Name, Tenant: one.Tenant}
	}
	inner := c.hold
	c.who, c.how, c.agent, c.key = string(one.ID), "key", one.AllowAgentForwarding, &one
	c.hold = func(ctx context.Context) (context.Context, context.CancelFunc) {
		release := func() {}
		if inner != nil {
			ctx, release = inner(ctx)
		}
		ctx, let := g.keys.hold(ctx, one.ID)
		return ctx, func() { let(); release() }
	}
	return c, nil
}

// token returns a valid token by id.
func (g *Gate) token(ctx context.Context, id holt.TokenID) (access.Token, error) {
	all, err := g.opt.Tokens.List(holt.WithActor(ctx, holt.Actor{})) // of every tenant
	if err != nil {
		return access.Token{}, err
	}
	for _, t := range all {
		if t.ID == id && (t.ExpiresAt == nil || g.now().Before(*t.ExpiresAt)) {
			return t, nil
		}
	}
	return access.Token{}, holt.Errorf(holt.Unauthenticated, "the token that added the key is no longer valid")
}
