package authz

import (
	"context"
	"strings"

	"holt"
	"holt/internal/api"
)

// rule checks a call whose right depends on more than one field of its input. in points to the input, which a rule may change.
type rule func(ctx context.Context, in any) (context.Context, error)

// on makes a rule of a check of one input type.
func on[In any](f func(ctx context.Context, in *In) error) rule {
	return func(ctx context.Context, in any) (context.Context, error) { return ctx, f(ctx, in.(*In)) }
}

// confining is on for a check that returns the context of the call.
func confining[In any](f func(ctx context.Context, in *In) (context.Context, error)) rule {
	return func(ctx context.Context, in any) (context.Context, error) { return f(ctx, in.(*In)) }
}

// seenRule returns Forbidden if the caller may not see an item of a list or stream.
type seenRule func(ctx context.Context, item any) error

// sees makes a seenRule of a check of one item type.
func sees[T any](f func(ctx context.Context, item T) error) seenRule {
	return func(ctx context.Context, item any) error { return f(ctx, item.(T)) }
}

// rules returns the rules of the endpoints whose need is [api.Content].
func (g *guard) rules() map[*api.Endpoint]rule {
	return map[*api.Endpoint]rule{
		api.CreateComputer.Endpoint: on(func(ctx context.Context, in *api.Body[holt.ComputerSpec]) error {
			return g.createComputer(ctx, in.Body.Template)
		}),
		api.CreateJob.Endpoint: on(func(ctx context.Context, in *api.Body[holt.JobSpec]) error {
			return g.createComputer(ctx, in.Body.Template)
		}),
		api.GetComputer.Endpoint:    on(func(ctx context.Context, in *api.OneComputer) error { return g.seeComputer(ctx, in.Computer) }),
		api.ForkComputer.Endpoint:   on(g.forkComputer),
		api.DiffComputers.Endpoint:  on(g.diffComputers),
		api.AttachTerminal.Endpoint: on(g.attachTerminal),
		api.ConnectPort.Endpoint: on(func(ctx context.Context, in *api.PortConnect) error {
			return g.port(ctx, in.Computer, in.Address())
		}),
		api.UpdateSchedule.Endpoint:         on(g.updateSchedule),
		api.GetLimit.Endpoint:               g.getLimit,
		api.WorkspaceFiles.Symlink.Endpoint: confining(g.symlink),
		api.WorkspaceFiles.Rename.Endpoint:  confining(g.rename),
		api.GetWorkspace.Endpoint:           on(func(ctx context.Context, in *api.OneWorkspace) error { return g.workspacePart(ctx, in.Workspace) }),
		api.QueryWorkspace.Endpoint:         on(g.query),
		api.MergeWorkspace.Endpoint:         on(g.merge),
		api.ImportWorkspace.Endpoint:        on(g.imports),
		api.CreateCheckpoint.Endpoint: on(func(ctx context.Context, in *api.WorkspaceBody[holt.CheckpointSpec]) error {
			return g.ownWorkspace(ctx, in.Workspace, write)
		}),
		api.ListCheckpoints.Endpoint: on(func(ctx context.Context, in *api.CheckpointsOf) error { return g.ownWorkspace(ctx, in.Workspace, read) }),
		api.GetHealth.Endpoint:       confining(g.health),
		api.ListAudit.Endpoint: on(func(ctx context.Context, in *api.AuditOf) (err error) {
			in.Tenant, err = g.auditTenant(ctx, in.Tenant)
			return err
		}),
		api.QueryAudit.Endpoint: on(func(ctx context.Context, in *api.AuditQuestion) (err error) {
			in.Tenant, err = g.auditTenant(ctx, "")
			return err
		}),
		api.CreateToken.Endpoint:  on(g.createToken),
		api.ListTokens.Endpoint:   g.credentials(read),
		api.GetToken.Endpoint:     on(func(ctx context.Context, in *api.OneToken) error { return g.token(ctx, in.Token, read) }),
		api.DeleteToken.Endpoint:  on(g.deleteToken),
		api.CreateS3Key.Endpoint:  on(func(ctx context.Context, in *api.TokenKeyed) error { return g.token(ctx, in.Token, write) }),
		api.ListS3Keys.Endpoint:   g.credentials(read),
		api.DeleteS3Key.Endpoint:  on(g.deleteS3Key),
		api.ListSSHKeys.Endpoint:  g.credentials(read),
		api.AddSSHKey.Endpoint:    g.credentials(write),
		api.DeleteSSHKey.Endpoint: on(g.deleteSSHKey),
		api.CreateUpload.Endpoint: confining(func(ctx context.Context, in *api.UploadStart) (context.Context, error) {
			if in.Body == nil { // the registry has refused such a call
				in.Body = &holt.UploadSpec{}
			}
			return g.uploadTarget(ctx, *in.Body, write)
		}),
		api.PublishArtifact.Endpoint:    confining(g.publish),
		api.PutArtifact.Endpoint:        on(func(ctx context.Context, in *api.ArtifactPut) error { return g.bucket(ctx, in.Bucket, in.Name, write) }),
		api.ListArtifacts.Endpoint:      on(func(ctx context.Context, in *api.ArtifactsOf) error { return g.bucket(ctx, in.Bucket, in.Prefix, read) }),
		api.GetArtifact.Endpoint:        on(func(ctx context.Context, in *api.OneArtifact) error { return g.artifact(ctx, in.Artifact, read) }),
		api.ReadArtifact.Endpoint:       on(func(ctx context.Context, in *api.ArtifactRead) error { return g.artifact(ctx, in.Artifact, read) }),
		api.CopyArtifact.Endpoint:       confining(g.copyArtifact),
		api.ZipArtifact.Endpoint:        on(func(ctx context.Context, in *api.OneArtifact) error { return g.artifact(ctx, in.Artifact, read) }),
		api.ArtifactFiles.List.Endpoint: on(func(ctx context.Context, in *api.FilesOf) error { return g.artifact(ctx, in.Artifact, read) }),
		api.ArtifactFiles.Stat.Endpoint: on(func(ctx context.Context, in *api.OneFile) error { return g.artifact(ctx, in.Artifact, read) }),
		api.ArtifactFiles.Read.Endpoint: on(func(ctx context.Context, in *api.FileRead) error { return g.artifact(ctx, in.Artifact, read) }),
		api.ArtifactFiles.Tar.Endpoint:  on(func(ctx context.Context, in *api.OneFile) error { return g.artifact(ctx, in.Artifact, read) }),
		api.UpdateArtifact.Endpoint:     on(func(ctx context.Context, in *api.ArtifactUpdate) error { return g.artifact(ctx, in.Artifact, write) }),
		api.DeleteArtifact.Endpoint:     on(func(ctx context.Context, in *api.ArtifactKeyed) error { return g.artifact(ctx, in.Artifact, write) }),
		api.CreateBucket.Endpoint: on(func(ctx context.Context, in *api.Body[holt.BucketSpec]) error {
			return g.setBucket(ctx, in.Body.Scan != "")
		}),
		api.UpdateBucket.Endpoint: on(func(ctx context.Context, in *api.BucketUpdate) error { return g.setBucket(ctx, in.Body.Scan != nil) }),
		api.GetBucket.Endpoint:    on(func(ctx context.Context, in *api.OneBucket) error { return g.seesBucketOf(ctx, in.Bucket) }),
		api.ListBuckets.Endpoint:  on(func(ctx context.Context, _ *api.Paging) error { return g.seesBucketOf(ctx, "") }),
		api.GetUpload.Endpoint:    g.upload(read),
		api.ResumeUpload.Endpoint: g.upload(write), // to resume can commit the upload
		api.AppendUpload.Endpoint: g.upload(write),
		api.CommitUpload.Endpoint: g.upload(write),
		api.DeleteUpload.Endpoint: g.upload(write),

		api.LinkArtifact.Endpoint:      on(func(ctx context.Context, in *api.ArtifactLinkMake) error { return g.linkArtifact(ctx, in.Artifact) }),
		api.ListArtifactLinks.Endpoint: on(func(ctx context.Context, in *api.ArtifactLinksOf) error { return g.artifact(ctx, in.Artifact, read) }),
		api.UnlinkArtifact.Endpoint:    on(g.unlinkArtifact),
	}
}

// createComputer checks a call that creates a computer. A template that is a file of the host needs an admin.
func (g *guard) createComputer(ctx context.Context, template string) error {
	if err := g.tenant(ctx, write); err != nil {
		return err
	}
	if strings.HasPrefix(template, holt.OCIRegistry) || !strings.ContainsAny(template, "/:") {
		return nil
	}
	return g.admin(ctx)
}

// forkComputer refuses tokens for single computers, since a fork is another computer. A computer may fork itself.
func (g *guard) forkComputer(ctx context.Context, in *api.ComputerBody[holt.ComputerForkSpec]) error {
	if a, _ := holt.ActorOf(ctx); a.Computer == "" {
		if err := g.tenant(ctx, write); err != nil {
			return err
		}
	}
	return g.self(ctx, in.Computer, write)
}

// diffComputers needs a right on both sides.
func (g *guard) diffComputers(ctx context.Context, in *api.TwoSides) error {
	if err := g.diffSide(ctx, in.From); err != nil {
		return err
	}
	return g.diffSide(ctx, in.To)
}

// attachTerminal is a write, since an attached client types. A terminal that is to be opened may not exist yet: another
// call opens it, and that checks the Linux user.
func (g *guard) attachTerminal(ctx context.Context, in *api.TerminalAttach) error {
	if in.Open && !in.Again {
		return g.computer(ctx, in.Computer, write)
	}
	return g.terminal(ctx, in.Computer, in.Terminal, write)
}

// updateSchedule checks the Linux user of the old command and of the new one.
func (g *guard) updateSchedule(ctx context.Context, in *api.ScheduleUpdate) error {
	if a, _ := holt.ActorOf(ctx); in.Body.Spec != nil && a.Token != "" && !a.Rights.User(in.Body.Spec.User) {
		return forbidden(a)
	}
	return g.schedule(ctx, in.Schedule, write)
}

// getLimit permits callers to read the limit of their own tenant. Those of other tenants need an admin.
func (g *guard) getLimit(ctx context.Context, in any) (context.Context, error) {
	if in.(*api.OneTenant).Tenant == holt.TenantOf(ctx) {
		return ctx, g.tenant(ctx, read)
	}
	return g.host(ctx)
}

// seenRules returns the rules of lists and streams whose items have no computer or user, or more than that.
func (g *guard) seenRules() map[*api.Endpoint]seenRule {
	return map[*api.Endpoint]seenRule{
		api.ListWorkspaces.Endpoint: sees(g.seesWorkspace),
		api.ListTokens.Endpoint:     sees(g.seesToken),
		api.ListSSHKeys.Endpoint:    sees(g.seesSSHKey),
		api.ListS3Keys.Endpoint:     sees(g.seesS3Key),
		api.ListUploads.Endpoint:    sees(g.seesUpload),
		api.ListBuckets.Endpoint:    sees(g.seesBucket),
		api.FollowEvents.Endpoint:   sees(seesEvent),
	}
}

// health refuses computers. An admin sees all tenants.
func (g *guard) health(ctx context.Context, _ *api.None) (context.Context, error) {
	a, _ := holt.ActorOf(ctx)
	if a.Computer != "" {
		return ctx, forbidden(a)
	}
	if all, err := g.host(ctx); err == nil {
		return all, nil
	}
	return ctx, nil
}

// auditTenant returns the tenant whose audit entries the caller may read; "": all.
func (g *guard) auditTenant(ctx context.Context, wanted string) (string, error) {
	a, _ := holt.ActorOf(ctx)
	if a.Admin() {
		return wanted, nil
	}
	if err := g.tenant(ctx, read); err != nil {
		return "", err
	}
	if len(a.Rights.Users) > 0 || wanted != "" && wanted != a.Tenant {
		return "", forbidden(a)
	}
	return a.Tenant, nil
}
