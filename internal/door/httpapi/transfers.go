package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// parcelType is the media type of a parcel; package parcel has its format.
const parcelType = "application/vnd.holt.parcel"

// Unasked is what an import or an export leaves out unless asked for.
type Unasked struct {
	Devices bool `query:"devices" doc:"device nodes too"`
	SetID   bool `query:"set_id" doc:"keep set-user-id and set-group-id bits"`
}

func (s *Server) transfers(api huma.API) {
	s.importTree(api)
	s.exportTree(api)
	s.usage(api)
	s.quota(api)
}

func (s *Server) importTree(api huma.API) {
	op := describe(http.MethodPut, "/v1/workspaces/{workspace}/import", "importWorkspace", "workspaces", "Put a tree of files into a workspace")
	op.Description = "The body is a parcel: a stream of files with modes, times, links, attributes and holes. A file replaces what has its name, directories are joined. " +
		"When it answers, everything survives power loss. If it fails, what came so far stays; the error's detail says how much that is."
	op.RequestBody = rawBody("a parcel")
	register(api, op, func(ctx context.Context, in *struct {
		OneWorkspace
		RawRequest
		Unasked
		Path  string `query:"path" default:"/" maxLength:"4096" doc:"directory it goes into; made if it is not there"`
		Owner bool   `query:"owner" doc:"files belong to the numbers they had; otherwise to the user agent"`
	}) (*reply[holt.TransferReport], error) {
		ref, path, err := FileOwner{ref: in.Workspace}.parsePath(in.Path)
		if err != nil {
			return nil, err
		}
		report, err := s.opt.Nouns.Workspaces.Import(ctx, ref, holt.ImportSpec{Path: path, Owner: in.Owner, Devices: in.Devices, SetID: in.SetID}, in.r.Body)
		return &reply[holt.TransferReport]{report}, err
	})
}

func (s *Server) exportTree(api huma.API) {
	op := describe(http.MethodGet, "/v1/workspaces/{workspace}/export", "exportWorkspace", "workspaces", "Get a tree of files out of a workspace")
	op.Description = "The answer is a parcel, as importWorkspace takes it. Without its end it was cut off. Of the present it is not one snapshot: what changes meanwhile is sent as it is met."
	op.Responses = rawResponse(parcelType, "a parcel")
	register(api, op, func(ctx context.Context, in *struct {
		OneWorkspace
		Unasked
		Path string `query:"path" default:"/" maxLength:"4096" doc:"directory that is its top"`
		At   string `query:"at" maxLength:"255" doc:"the checkpoint to send; default: the present"`
	}) (*huma.StreamResponse, error) {
		ref, path, err := FileOwner{ref: in.Workspace}.parsePath(in.Path)
		if err != nil {
			return nil, err
		}
		return s.raw(ctx, parcelType, func(ctx context.Context, w *rawWriter) error {
			return s.opt.Nouns.Workspaces.Export(ctx, ref, holt.ExportSpec{Path: path, At: in.At, Devices: in.Devices, SetID: in.SetID}, w)
		}), nil
	})
}

func (s *Server) usage(api huma.API) {
	op := describe(http.MethodGet, "/v1/workspaces/{workspace}/usage", "usageOfWorkspace", "workspaces", "Add up what directories take")
	register(api, op, func(ctx context.Context, in *struct {
		OneWorkspace
		Paging
		Path  string `query:"path" default:"/" maxLength:"4096" doc:"absolute, from the workspace's top"`
		Depth int    `query:"depth" minimum:"0" maximum:"64" doc:"also the directories below it, down to so many levels"`
	}) (*reply[holt.Page[holt.Usage]], error) {
		ref, path, err := FileOwner{ref: in.Workspace}.parsePath(in.Path)
		if err != nil {
			return nil, err
		}
		all, err := s.opt.Nouns.Workspaces.Usage(ctx, ref, path, in.Depth)
		if err != nil {
			return nil, err
		}
		return pageOf(all, func(u holt.Usage) string { return string(u.Path) }, in.Paging), nil
	})
}

func (s *Server) quota(api huma.API) {
	op := describe(http.MethodPut, "/v1/workspaces/{workspace}/quota", "setQuota", "workspaces", "Bound what a workspace may hold")
	op.Description = "What is over a quota stays; it can only not grow. Programs get EDQUOT, and df shows the quota."
	register(api, op, func(ctx context.Context, in *struct {
		OneWorkspace
		Body holt.Quota
	}) (*reply[holt.Workspace], error) {
		ref, err := parseRef(in.Workspace)
		if err != nil {
			return nil, err
		}
		w, err := s.opt.Nouns.Workspaces.SetQuota(ctx, ref, in.Body)
		return &reply[holt.Workspace]{w}, err
	})
}

func (s *Server) tags(api huma.API) {
	const tag = "workspaces"
	nouns := s.opt.Nouns.Workspaces
	op := describe(http.MethodGet, "/v1/workspaces/{workspace}/tags", "listTags", tag, "List the tags of a file by name")
	op.Description = "A tag is a user attribute (user.NAME). The view tags of queryWorkspace has those of all files."
	register(api, op, func(ctx context.Context, in *struct {
		OneWorkspace
		Paging
		Path string `query:"path" required:"true" maxLength:"4096" doc:"absolute, from the workspace's top"`
	}) (*reply[holt.Page[holt.Tag]], error) {
		ref, path, err := FileOwner{ref: in.Workspace}.parsePath(in.Path)
		if err != nil {
			return nil, err
		}
		all, err := nouns.Tags(ctx, ref, path)
		if err != nil {
			return nil, err
		}
		return pageOf(all, func(t holt.Tag) string { return string(t.Name) }, in.Paging), nil
	})

	op = describe(http.MethodPost, "/v1/workspaces/{workspace}/tags", "tagFile", tag, "Set and remove tags of a file")
	register(api, op, func(ctx context.Context, in *struct {
		OneWorkspace
		Keyed
		Body holt.TagSpec
	}) (*reply[[]holt.Tag], error) {
		ref, path, err := FileOwner{ref: in.Workspace}.parsePath(string(in.Body.Path))
		if err != nil {
			return nil, err
		}
		in.Body.Path = holt.OSString(path)
		all, err := nouns.Tag(ctx, ref, in.Body, in.Key)
		return &reply[[]holt.Tag]{all}, err
	})
}
