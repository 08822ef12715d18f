package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// OneService names a service of a computer in a path.
type OneService struct {
	OneComputer
	Service string `path:"service" maxLength:"255" doc:"name"`
}

const servicesPath = "/v1/computers/{computer}/services"

func (s *Server) services(api huma.API) {
	const tag = "services"
	nouns := s.opt.Nouns.Services

	op := describe(http.MethodPost, servicesPath, "addService", tag, "Have a computer keep a program running")
	op.Description = "It becomes a unit of the computer's systemd, and is started. The answer does not wait until it is ready; getService shows that. " +
		"It is started with the computer, and goes on through pause and in forks. Adding what is there already changes nothing. A paused or stopped computer is woken first. A computer without systemd: unsupported."
	op.DefaultStatus = http.StatusCreated
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		Keyed
		Body holt.ServiceSpec
	}) (*reply[holt.Service], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		one, err := nouns.Add(ctx, ref, in.Body, in.Key)
		return &reply[holt.Service]{one}, err
	})

	register(api, describe(http.MethodGet, servicesPath, "listServices", tag, "List the services of a computer, those of its template too"),
		func(ctx context.Context, in *struct {
			OneComputer
			Paging
		}) (*reply[holt.Page[holt.Service]], error) {
			ref, err := parseRef(in.Computer)
			if err != nil {
				return nil, err
			}
			all, err := nouns.List(ctx, ref)
			return pageOf(all, func(s holt.Service) string { return s.Name }, in.Paging), err
		})

	register(api, describe(http.MethodGet, servicesPath+"/{service}", "getService", tag, "Get a service"),
		func(ctx context.Context, in *OneService) (*reply[holt.Service], error) {
			ref, err := parseRef(in.Computer)
			if err != nil {
				return nil, err
			}
			one, err := nouns.Get(ctx, ref, in.Service)
			return &reply[holt.Service]{one}, err
		})

	s.doService(api, http.MethodPost, "/start", "start", "Start a service, now and with the computer")
	s.doService(api, http.MethodPost, "/restart", "restart", "Restart a service")
	s.doService(api, http.MethodPost, "/stop", "stop", "Stop a service; it stays so when the computer is started again")
	s.doService(api, http.MethodDelete, "", "delete", "Stop a service and remove it; one that the template declares cannot be removed")

	op = describe(http.MethodGet, servicesPath+"/{service}/logs", "serviceLogs", tag, "Read what a service has logged")
	op.Responses = rawResponse("text/plain", "lines of the computer's journal, each with its time")
	register(api, op, func(ctx context.Context, in *struct {
		OneService
		Lines  int  `query:"lines" minimum:"1" maximum:"100000" default:"1000" doc:"only the last so many"`
		Follow bool `query:"follow" doc:"go on with what is added"`
	}) (*huma.StreamResponse, error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		if in.Follow {
			s.begun(requestOf(ctx))
		}
		return s.raw(ctx, "text/plain; charset=utf-8", func(ctx context.Context, w *rawWriter) error {
			defer w.q.wait(ctx)()
			return nouns.Logs(ctx, ref, in.Service, holt.ServiceLogQuery{Lines: in.Lines, Follow: in.Follow}, w)
		}), nil
	})
}

// doService registers something that is done with a service.
func (s *Server) doService(api huma.API, method, path, verb, summary string) {
	register(api, describe(method, servicesPath+"/{service}"+path, verb+"Service", "services", summary), func(ctx context.Context, in *struct {
		OneService
		Keyed
	}) (*reply[holt.Service], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		one, err := s.opt.Nouns.Services.Do(ctx, ref, in.Service, verb, in.Key)
		return &reply[holt.Service]{one}, err
	})
}
