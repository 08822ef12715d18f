package authz

import (
	"context"
	"strings"

	"holt"
	"holt/internal/api"
)

// rule checks a call whose right depends on more than one name. in points to the input of the call, which a rule may change.
type rule func(ctx context.Context, in any) (context.Context, error)

// on returns a rule for an input.
func on[In any](f func(ctx context.Context, in *In) error) rule {
	return func(ctx context.Context, in any) (context.Context, error) { return ctx, f(ctx, in.(*In)) }
}

// confining returns a rule for an input that confines the call to what the caller covers.
func confining[In any](f func(ctx context.Context, in *In) (context.Context, error)) rule {
	return func(ctx context.Context, in any) (context.Context, error) { return f(ctx, in.(*In)) }
}

// seenRule returns Forbidden if the caller may not see an item of a list, or an answer.
type seenRule func(ctx context.Context, item any) error

// sees returns a rule for an item.
func sees[T any](f func(ctx context.Context, item T) error) seenRule {
	return func(ctx context.Context, item any) error { return f(ctx, item.(T)) }
}

// rules are those of the endpoints whose need is [api.Content].
func (w *warden) rules() map[*api.Endpoint]rule {
	return map[*api.Endpoint]rule{
		api.CreateComputer.Endpoint: on(func(ctx context.Context, in *api.Body[holt.ComputerSpec]) error {
			return w.creates(ctx, in.Body.Template)
		}),
		api.CreateJob.Endpoint: on(func(ctx context.Context, in *api.Body[holt.JobSpec]) error {
			return w.creates(ctx, in.Body.Template)
		}),
		api.GetComputer.Endpoint:    on(func(ctx context.Context, in *api.OneComputer) error { return w.named(ctx, in.Computer) }),
		api.ForkComputer.Endpoint:   on(w.forkComputer),
		api.DiffComputers.Endpoint:  on(w.diffComputers),
		api.AttachTerminal.Endpoint: on(w.attachTerminal),
		api.ConnectPort.Endpoint: on(func(ctx context.Context, in *api.PortConnect) error {
			return w.port(ctx, in.Computer, in.Address())
		}),
		api.UpdateSchedule.Endpoint:         on(w.updateSchedule),
		api.GetLimit.Endpoint:               w.getLimit,
		api.WorkspaceFiles.Symlink.Endpoint: confining(w.symlink),
		api.WorkspaceFiles.Rename.Endpoint:  confining(w.rename),
		api.GetWorkspace.Endpoint:           on(func(ctx context.Context, in *api.OneWorkspace) error { return w.any(ctx, in.Workspace) }),
		api.QueryWorkspace.Endpoint:         on(w.query),
		api.MergeWorkspace.Endpoint:         on(w.merge),
		api.ImportWorkspace.Endpoint:        on(w.imports),
		api.CreateCheckpoint.Endpoint: on(func(ctx context.Context, in *api.WorkspaceBody[holt.CheckpointSpec]) error {
			return w.ours(ctx, in.Workspace, change)
		}),
		api.ListCheckpoints.Endpoint: on(func(ctx context.Context, in *api.CheckpointsOf) error { return w.ours(ctx, in.Workspace, look) }),
		api.GetHealth.Endpoint:       confining(w.health),
		api.ListAudit.Endpoint: on(func(ctx context.Context, in *api.AuditOf) (err error) {
			in.Tenant, err = w.whose(ctx, in.Tenant)
			return err
		}),
		api.QueryAudit.Endpoint: on(func(ctx context.Context, in *api.AuditQuestion) (err error) {
			in.Tenant, err = w.whose(ctx, "")
			return err
		}),
		api.CreateToken.Endpoint:  on(w.createToken),
		api.ListTokens.Endpoint:   w.credentials(look),
		api.GetToken.Endpoint:     on(func(ctx context.Context, in *api.OneToken) error { return w.token(ctx, in.Token, look) }),
		api.DeleteToken.Endpoint:  on(w.deleteToken),
		api.ListSSHKeys.Endpoint:  w.credentials(look),
		api.AddSSHKey.Endpoint:    w.credentials(change),
		api.DeleteSSHKey.Endpoint: on(w.deleteSSHKey),
		api.CreateUpload.Endpoint: confining(func(ctx context.Context, in *api.UploadStart) (context.Context, error) {
			if in.Body == nil { // the registry refuses such a call before
				in.Body = &holt.UploadSpec{}
			}
			return w.file(ctx, *in.Body, change)
		}),
		api.GetUpload.Endpoint:    w.upload(look),
		api.ResumeUpload.Endpoint: w.upload(change), // a piece that is halted may be the last, and then the upload is committed
		api.AppendUpload.Endpoint: w.upload(change),
		api.CommitUpload.Endpoint: w.upload(change),
		api.DeleteUpload.Endpoint: w.upload(change),
	}
}

// creates checks a call that makes a computer. Templates that are files of the host are for admins.
func (w *warden) creates(ctx context.Context, template string) error {
	if err := w.tenant(ctx, change); err != nil {
		return err
	}
	if strings.HasPrefix(template, holt.OCIRegistry) || !strings.ContainsAny(template, "/:") {
		return nil
	}
	return w.admin(ctx)
}

// forkComputer refuses tokens for single computers, since a fork is a new computer of the tenant. A computer may fork itself.
func (w *warden) forkComputer(ctx context.Context, in *api.ComputerBody[holt.ComputerForkSpec]) error {
	if a, _ := holt.ActorOf(ctx); a.Computer == "" {
		if err := w.tenant(ctx, change); err != nil {
			return err
		}
	}
	return w.self(ctx, in.Computer, change)
}

// diffComputers needs a right on both sides.
func (w *warden) diffComputers(ctx context.Context, in *api.TwoSides) error {
	if err := w.side(ctx, in.From); err != nil {
		return err
	}
	return w.side(ctx, in.To)
}

// attachTerminal changes the terminal, since whoever is attached types. A terminal that is opened first may not exist yet:
// opening it is a call of its own, which checks the Linux user.
func (w *warden) attachTerminal(ctx context.Context, in *api.TerminalAttach) error {
	if in.Open && !in.Again {
		return w.computer(ctx, in.Computer, change)
	}
	return w.terminal(ctx, in.Computer, in.Terminal, change)
}

// updateSchedule checks the Linux users of the command as it is and as it will be.
func (w *warden) updateSchedule(ctx context.Context, in *api.ScheduleUpdate) error {
	if a, _ := holt.ActorOf(ctx); in.Body.Spec != nil && a.Token != "" && !a.Rights.User(in.Body.Spec.User) {
		return denied(a)
	}
	return w.schedule(ctx, in.Schedule, change)
}

// getLimit lets callers see the limit of their own tenant; the others are for admins.
func (w *warden) getLimit(ctx context.Context, in any) (context.Context, error) {
	if in.(*api.OneTenant).Tenant == holt.TenantOf(ctx) {
		return ctx, w.tenant(ctx, look)
	}
	return w.host(ctx)
}

// seenRules are those of lists and streams whose items depend on more than their computer and user.
func (w *warden) seenRules() map[*api.Endpoint]seenRule {
	return map[*api.Endpoint]seenRule{
		api.ListWorkspaces.Endpoint: sees(w.seesWorkspace),
		api.ListTokens.Endpoint:     sees(w.seesToken),
		api.ListSSHKeys.Endpoint:    sees(w.seesSSHKey),
		api.ListUploads.Endpoint:    sees(w.seesUpload),
		api.FollowEvents.Endpoint:   sees(seesEvent),
	}
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
