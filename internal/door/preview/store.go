package preview

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"holt"
	"holt/internal/access"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// Computers are what has ports. Both calls ask whether the actor of ctx may.
type Computers interface {
	Get(ctx context.Context, ref string) (holt.Computer, error)
	// Wake marks a use of a computer, which runs then, until done is called.
	Wake(ctx context.Context, ref string, kind holt.UseKind, detail string) (c holt.Computer, done func(), err error)
}

// Ports are what listens in computers.
type Ports interface {
	List(ctx context.Context, computer string) ([]holt.Listener, error)
	// Reach connects to a port of a computer that runs; the connection is no use of it.
	Reach(ctx context.Context, computer string, to holt.PortAddress) (holt.PortConn, error)
}

// Tokens say whose an API token is.
type Tokens interface {
	Check(ctx context.Context, secret string) (access.Token, error)
	Hold(ctx context.Context, token access.Token) (context.Context, context.CancelFunc)
}

// Config is what previews are made of.
type Config struct {
	DB        *db.DB // with [Schema]
	Keys      *idempotency.Keys
	KeyFile   string   // key of the links, made if it is not there
	Place     Place    // Domain "": localhost
	Hosts     []string // names by which the API is reached, besides IP addresses and localhost: they never show a computer
	Computers Computers
	Ports     Ports
	Tokens    Tokens
	Log       *slog.Logger // nil: slog.Default()
	// May says whether the actor of ctx may connect to a port of a computer; nil: whoever finds the computer may.
	May func(ctx context.Context, computer holt.ComputerID, port int) error
	// TXT looks up the TXT records of a name; nil: the host's resolver does.
	TXT func(ctx context.Context, name string) ([]string, error)
	// Record is told of who comes for the first time, of each connection that has ended, and of who is turned away; nil: nobody is.
	Record func(ctx context.Context, e holt.AuditEntry)
}

// Store is the previews of all computers, and their domains.
type Store struct {
	cfg     Config
	table   table
	signer  signer
	streams streams
	now     func() time.Time

	mu       sync.Mutex
	place    Place
	loopback string // port at which every address of the loopback shows previews; "": none
}

// Open opens the previews of a control database.
func Open(cfg Config) (*Store, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Place.Domain == "" {
		cfg.Place.Domain = "localhost"
	}
	if cfg.TXT == nil {
		cfg.TXT = func(ctx context.Context, name string) ([]string, error) {
			return net.DefaultResolver.LookupTXT(ctx, name+".") // of no domain that the host searches
		}
	}
	cfg.Hosts = plainHosts(cfg.Hosts)
	s := &Store{cfg: cfg, table: table{cfg.DB}, place: cfg.Place, now: time.Now}
	var err error
	s.signer, err = openKey(cfg.KeyFile)
	return s, err
}

// listensAt completes where previews are with what a listener has.
func (s *Store) listensAt(scheme, port string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.place.Scheme == "" {
		s.place.Scheme = scheme
		if s.place.Port == "" {
			s.place.Port = port
		}
	}
}

// where returns where previews are. Unavailable: nothing listens for them.
func (s *Store) where() (Place, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.place.Scheme == "" || s.place.Off {
		return s.place, holt.Errorf(holt.Unavailable, "this daemon shows no previews").WithHint("holt serve --preview-listen ADDRESS or --listen ADDRESS has it listen for them")
	}
	return s.place, nil
}

// urlOf is where the preview of a port is.
func (s *Store) urlOf(c holt.Computer, port int) string {
	p, err := s.where()
	if err != nil {
		return ""
	}
	return p.url(Label(c, port) + "." + p.Domain)
}

func (s *Store) urlOfDomain(name string) string {
	p, err := s.where()
	if err != nil {
		return ""
	}
	return p.url(name)
}

// List returns the previews of a computer, by port.
func (s *Store) List(ctx context.Context, ref string) ([]holt.Preview, error) {
	c, err := s.cfg.Computers.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	rows, domains, err := s.table.list(ctx, c.ID)
	list := []holt.Preview{}
	for _, r := range rows {
		list = append(list, s.shown(c, r, domains))
	}
	return list, err
}

func (s *Store) shown(c holt.Computer, r row, domains []domain) holt.Preview {
	p := holt.Preview{ComputerID: c.ID, Computer: c.Name, Port: r.port, Public: r.public, URL: s.urlOf(c, r.port), ProgramURL: s.programURL(c, r), CreatedAt: r.created}
	for _, d := range domains {
		if d.port == r.port {
			p.Domains = append(p.Domains, d.name)
		}
	}
	return p
}

// Set makes the preview of a port, or changes it. What the public has open ends when it is made private.
func (s *Store) Set(ctx context.Context, ref string, port int, spec holt.PreviewSpec) (holt.Preview, error) {
	c, r, err := s.set(ctx, ref, port, spec.Public)
	if err != nil {
		return holt.Preview{}, err
	}
	if !r.public {
		s.streams.end(c.ID, port, ended("is private now"), func(how admission) bool { return how == byNobody || how == byPublic })
	}
	_, domains, err := s.table.list(ctx, c.ID)
	return s.shown(c, r, domains), err
}

func (s *Store) set(ctx context.Context, ref string, port int, public *bool) (holt.Computer, row, error) {
	if _, err := holt.ParsePort(strconv.Itoa(port)); err != nil {
		return holt.Computer{}, row{}, err
	}
	if s.cfg.Place.Off {
		_, err := s.where()
		return holt.Computer{}, row{}, err
	}
	c, err := s.cfg.Computers.Get(ctx, ref)
	if err != nil {
		return c, row{}, err
	}
	r, err := s.table.put(ctx, c.ID, port, public, s.now())
	return c, r, err
}

// Delete removes the preview of a port: its links are no longer valid, and what is open through it ends.
func (s *Store) Delete(ctx context.Context, ref string, port int, key string) error {
	return s.remove(ctx, key, "preview.delete", []any{ref, port}, func(ctx context.Context) error {
		c, err := s.cfg.Computers.Get(ctx, ref)
		if err != nil {
			return err
		}
		found, err := s.table.drop(ctx, c.ID, port)
		if err == nil && !found {
			err = holt.Errorf(holt.NotFound, "port %d of %s has no preview", port, c.Name).WithHint("holt computer previews %s lists those that it has", c.Name)
		}
		if err == nil {
			s.streams.end(c.ID, port, ended("was deleted"), func(admission) bool { return true })
		}
		return err
	})
}

// Link makes a link to a preview, and that, too, if there is none. Each call makes another one: none is kept.
func (s *Store) Link(ctx context.Context, ref string, port int, spec holt.PreviewLinkSpec) (holt.PreviewLink, error) {
	life := time.Duration(spec.ExpiresInMS) * time.Millisecond
	if spec.ExpiresInMS == 0 {
		life = defaultLife
	}
	if spec.ExpiresInMS < 0 || spec.ExpiresInMS > mostLife.Milliseconds() || life < time.Second {
		return holt.PreviewLink{}, holt.Errorf(holt.InvalidArgument, "a link cannot open a preview for %s", holt.ShortMS(spec.ExpiresInMS)).
			WithHint("give a second to 90 days; a preview that is public needs no link")
	}
	if _, err := s.where(); err != nil {
		return holt.PreviewLink{}, err
	}
	c, r, err := s.set(ctx, ref, port, nil)
	if err != nil {
		return holt.PreviewLink{}, err
	}
	by, _ := holt.ActorOf(ctx)
	end := s.now().Add(life).UTC().Truncate(time.Second)
	if !by.Expires.IsZero() && end.After(by.Expires) { // nobody makes what outlives them
		end = by.Expires.UTC().Truncate(time.Second)
	}
	token := s.signer.sign(c.ID, port, r.serial, end, by.Token)
	query := "?" + linkParameter + "=" + token
	link := holt.PreviewLink{URL: s.urlOf(c, port) + query, Token: token, ExpiresAt: end}
	if at := s.programURL(c, r); at != "" {
		link.ProgramURL = at + query
	}
	return link, nil
}

// Domains returns the domains of a computer, by name.
func (s *Store) Domains(ctx context.Context, ref string) ([]holt.PreviewDomain, error) {
	c, err := s.cfg.Computers.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	_, domains, err := s.table.list(ctx, c.ID)
	list := []holt.PreviewDomain{}
	for _, d := range domains {
		list = append(list, s.shownDomain(c, d))
	}
	return list, err
}

func (s *Store) shownDomain(c holt.Computer, d domain) holt.PreviewDomain {
	return holt.PreviewDomain{Domain: d.name, ComputerID: c.ID, Computer: c.Name, Port: d.port, URL: s.urlOfDomain(d.name), CreatedAt: d.created}
}

// SetDomain has a domain show a port of a computer, whose preview says who may come.
// InvalidArgument: it is a name of the API's, or of the previews'. Forbidden: nothing says that it is the caller's tenant's.
// AlreadyExists: it shows another computer's.
func (s *Store) SetDomain(ctx context.Context, ref, name string, spec holt.PreviewDomainSpec) (holt.PreviewDomain, error) {
	name, err := holt.ParseDomain(name)
	if err == nil {
		_, err = holt.ParsePort(strconv.Itoa(spec.Port))
	}
	if err == nil {
		err = s.free(name)
	}
	if err != nil {
		return holt.PreviewDomain{}, err
	}
	c, err := s.cfg.Computers.Get(ctx, ref)
	if err == nil {
		err = s.owned(ctx, c, name)
	}
	if err == nil {
		c, _, err = s.set(ctx, ref, spec.Port, nil)
	}
	if err != nil {
		return holt.PreviewDomain{}, err
	}
	d := domain{name, c.ID, spec.Port, s.now().UTC()}
	return s.shownDomain(c, d), s.table.putDomain(ctx, d)
}

// DeleteDomain takes a domain away from a computer; what is open through it ends.
func (s *Store) DeleteDomain(ctx context.Context, ref, name, key string) error {
	return s.remove(ctx, key, "preview.domain.delete", []any{ref, name}, func(ctx context.Context) error {
		c, err := s.cfg.Computers.Get(ctx, ref)
		if err != nil {
			return err
		}
		if name, err = holt.ParseDomain(name); err != nil {
			return err
		}
		found, err := s.table.dropDomain(ctx, c.ID, name)
		if err == nil && !found {
			err = holt.Errorf(holt.NotFound, "%s has no domain %s", c.Name, name).WithHint("holt computer domain list %s lists those that it has", c.Name)
		}
		if err == nil {
			s.streams.endHost(c.ID, name, ended("has this name no more"))
		}
		return err
	})
}

func (s *Store) remove(ctx context.Context, key, method string, request any, act func(context.Context) error) error {
	_, err := idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[struct{}]{Key: key, Method: method, Request: request, Removes: true,
		Act: func(ctx context.Context, _ *idempotency.Claim) (struct{}, error) { return struct{}{}, act(ctx) }})
	return err
}

func ended(how string) error {
	return holt.Errorf(holt.Unauthenticated, "the preview %s", how)
}
