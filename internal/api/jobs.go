package api

import "holt"

// OneJob names a job in a path.
type OneJob struct {
	Job string `path:"job" doc:"job id"`
}

// Inputs of jobs.
type (
	JobKeyed struct {
		OneJob
		Keyed
	}
	JobEvents struct {
		OneJob
		EventsFrom
	}
	JobInputsKeyed struct {
		Keyed
		Inputs string `path:"inputs" doc:"what sendJobInputs answered"`
	}
)

// ParcelType is the media type of a parcel; package parcel has its format.
const ParcelType = "application/vnd.holt.parcel"

var jobsTag = Tag("jobs")

// Jobs are commands in computers of their own that are thrown away. They make computers, so they need a right on the tenant.
var (
	SendJobInputs = Put[struct{}, holt.JobInputs]("/v1/job-inputs", "sendJobInputs", "Send files for jobs to begin with",
		changeTenant, Created, jobsTag, Takes("a parcel"), Doc("The body is a parcel, as importWorkspace takes it. Any number of jobs can begin with the files: each gets a fork. They are kept for an hour after the last of these jobs has ended."))
	DropJobInputs = Delete[JobInputsKeyed, None]("/v1/job-inputs/{inputs}", "dropJobInputs", "Delete inputs after the last job that uses them", changeTenant, jobsTag)
	CreateJob     = Post[Body[holt.JobSpec], holt.Job]("/v1/jobs", "createJob", "Run a command in a temporary computer",
		Need{On: Content, User: "Body.Run.User", Change: true}, Created, Doc("The answer comes at once; the job begins when the host has room. If its machine fails it begins again, with its inputs, at most three times."))
	ListJobs = Get[Paging, holt.Page[holt.Job]]("/v1/jobs", "listJobs", "List jobs, newest first",
		Need{On: Tenant, User: EveryUser}, Doc("The last 1000 of a tenant that ended are listed, and those whose outputs are kept."))
	GetJob    = Get[OneJob, holt.Job]("/v1/jobs/{job}", "getJob", "Get a job", Need{On: Job})
	CancelJob = Post[JobKeyed, holt.Job]("/v1/jobs/{job}/cancel", "cancelJob", "Cancel a job and delete its computer",
		Need{On: Job, Change: true}, Doc("The answer comes when that is done. A job that has ended stays as it is."))
	DeleteJob = Delete[JobKeyed, None]("/v1/jobs/{job}", "deleteJob", "Remove a job with its outputs; one that has not ended is cancelled", Need{On: Job, Change: true})
	FollowJob = Get[JobEvents, Stream]("/v1/jobs/{job}/events", "followJob", "Follow the output and the end of a job",
		Need{On: Job}, Events[holt.RunEvent](), Audited(AuditAll), Doc("As followRun. The exit event comes when the job has ended and its outputs are collected. If the command did not end by itself, it is the exit of a lost run; the job says why. "+
			"Of a job that is over, the last 64 KiB of its output are kept."))
	GetJobOutputs = Get[OneJob, Stream]("/v1/jobs/{job}/outputs", "getJobOutputs", "Get the outputs of a job that has ended",
		Need{On: Job}, Bytes(ParcelType, "a parcel"), Audited(AuditAll), Doc("The answer is a parcel, as exportWorkspace sends it. Outputs are kept for 24 hours, or until they are released."))
	ReleaseJobOutputs = Delete[JobKeyed, holt.Job]("/v1/jobs/{job}/outputs", "releaseJobOutputs", "Remove the outputs of a job that has ended", Need{On: Job, Change: true})
)
