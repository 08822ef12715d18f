package authz

import (
	"context"

	"holt"
	"holt/internal/api"
)

// seenRule returns Forbidden if the caller may not see an item of a list, or an answer.
type seenRule func(ctx context.Context, item any) error

// on makes a rule of a function that takes the input by its type.
func on[In any](f func(context.Context, *In) (context.Context, error)) rule {
	return func(ctx context.Context, in any) (context.Context, error) { return f(ctx, in.(*In)) }
}

// only makes a rule of a function that leaves the context as it is.
func only[In any](f func(context.Context, *In) error) rule {
	return func(ctx context.Context, in any) (context.Context, error) { return ctx, f(ctx, in.(*In)) }
}

// sees makes a rule of a function that takes the item by its type.
func sees[T any](f func(context.Context, T) error) seenRule {
	return func(ctx context.Context, item any) error { return f(ctx, item.(T)) }
}

func (w *warden) rules() map[*api.Endpoint]rule {
	return map[*api.Endpoint]rule{
		api.UpdateSchedule.Endpoint:         only(w.updateSchedule),
		api.WorkspaceFiles.Symlink.Endpoint: on(w.symlink),
		api.WorkspaceFiles.Rename.Endpoint:  on(w.rename),
		api.GetWorkspace.Endpoint:           only(func(ctx context.Context, in *api.OneWorkspace) error { return w.any(ctx, in.Workspace) }),
		api.QueryWorkspace.Endpoint:         only(w.query),
		api.MergeWorkspace.Endpoint:         only(w.merge),
		api.ImportWorkspace.Endpoint:        only(w.imports),
		api.CreateCheckpoint.Endpoint: only(func(ctx context.Context, in *api.WorkspaceBody[holt.CheckpointSpec]) error {
			return w.ours(ctx, in.Workspace, change)
		}),
		api.ListCheckpoints.Endpoint: only(func(ctx context.Context, in *api.CheckpointsOf) error { return w.ours(ctx, in.Workspace, look) }),
		api.GetHealth.Endpoint:       on(w.health),
		api.ListAudit.Endpoint: only(func(ctx context.Context, in *api.AuditOf) (err error) {
			in.Tenant, err = w.whose(ctx, in.Tenant)
			return err
		}),
		api.QueryAudit.Endpoint: only(func(ctx context.Context, in *api.AuditQuestion) (err error) {
			in.Tenant, err = w.whose(ctx, "")
			return err
		}),
		api.CreateToken.Endpoint:  only(w.createToken),
		api.ListTokens.Endpoint:   w.credentials(look),
		api.GetToken.Endpoint:     only(func(ctx context.Context, in *api.OneToken) error { return w.token(ctx, in.Token, look) }),
		api.DeleteToken.Endpoint:  only(w.deleteToken),
		api.ListSSHKeys.Endpoint:  w.credentials(look),
		api.AddSSHKey.Endpoint:    w.credentials(change),
		api.DeleteSSHKey.Endpoint: only(w.deleteSSHKey),
		api.CreateUpload.Endpoint: on(func(ctx context.Context, in *api.UploadStart) (context.Context, error) {
			return w.file(ctx, *in.Body, change)
		}),
		api.GetUpload.Endpoint:    w.upload(look),
		api.ResumeUpload.Endpoint: w.upload(change), // a piece that is halted may be the last, and then the upload is committed
		api.AppendUpload.Endpoint: w.upload(change),
		api.CommitUpload.Endpoint: w.upload(change),
		api.DeleteUpload.Endpoint: w.upload(change),
	}
}

func (w *warden) seenRules() map[*api.Endpoint]seenRule {
	return map[*api.Endpoint]seenRule{
		api.ListWorkspaces.Endpoint: sees(w.seesWorkspace),
		api.ListTokens.Endpoint:     sees(w.seesToken),
		api.ListSSHKeys.Endpoint:    sees(w.seesSSHKey),
		api.ListUploads.Endpoint:    sees(w.seesUpload),
		api.FollowEvents.Endpoint:   sees(seesEvent),
	}
}

func (w *warden) updateSchedule(ctx context.Context, in *api.ScheduleUpdate) error {
	if a, _ := holt.ActorOf(ctx); in.Body.Spec != nil && a.Token != "" && !a.Rights.User(in.Body.Spec.User) {
		return denied(a)
	}
	return w.schedule(ctx, in.Schedule, change)
}

// health is for everyone except computers. An admin sees all tenants.
func (w *warden) health(ctx context.Context, _ *api.None) (context.Context, error) {
	a, _ := holt.ActorOf(ctx)
	if a.Computer != "" {
		return ctx, denied(a)
	}
	if all, err := w.host(ctx); err == nil {
		return all, nil
	}
	return ctx, nil
}

// whose returns the tenant whose entries of the audit log a call may see; "": all.
func (w *warden) whose(ctx context.Context, wanted string) (string, error) {
	a, _ := holt.ActorOf(ctx)
	if a.Admin() {
		return wanted, nil
	}
	if err := w.tenant(ctx, look); err != nil {
		return "", err
	}
	if len(a.Rights.Users) > 0 || wanted != "" && wanted != a.Tenant {
		return "", denied(a)
	}
	return a.Tenant, nil
}
