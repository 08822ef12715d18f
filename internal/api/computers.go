package api

import "holt"

// OneComputer names a computer in a path.
type OneComputer struct {
	Computer string `path:"computer" doc:"name or id"`
}

// Inputs of computers.
type (
	ComputerKeyed struct {
		OneComputer
		Keyed
	}
	ComputerBody[T any] struct {
		OneComputer
		Keyed
		Body T
	}
	ComputerList struct {
		OneComputer
		Paging
	}
	ComputerLog struct {
		OneComputer
		Tail   int64 `query:"tail_bytes" minimum:"0" doc:"only the last bytes, this many; 0: all"`
		Follow bool  `query:"follow" doc:"continue with what is added"`
	}
	NetworkChange struct {
		OneComputer
		Body holt.NetworkPolicy
	}
	OneHold struct {
		OneComputer
		Hold string `path:"hold" doc:"hold id"`
	}
	HoldKeyed struct {
		OneHold
		Keyed
	}
	OneSecret struct {
		OneComputer
		Secret string `path:"secret" maxLength:"64" doc:"name: letters, digits, dots, dashes and underscores"`
	}
	SecretKeyed struct {
		OneSecret
		Keyed
	}
	SecretChange struct {
		OneSecret
		Body holt.HostSecret
	}
)

const computerPath = "/v1/computers/{computer}"

// Rights on a computer.
var (
	readComputer   = Need{On: Computer}
	changeComputer = Need{On: Computer, Change: true}
	asRoot         = Need{On: Computer, User: "=root"} // to read what belongs to root
	changeAsRoot   = Need{On: Computer, User: "=root", Change: true}
	changeTenant   = Need{On: Tenant, Change: true}
)

// Computers are the machines.
var (
	CreateComputer = Post[Body[holt.ComputerSpec], holt.Computer]("/v1/computers", "createComputer", "Create and start a computer",
		Need{On: Content, Change: true}, Created, Doc("The answer comes when the computer's agent answers. A create that fails leaves nothing behind."))
	ListComputers = GetList[Paging]("/v1/computers", "listComputers", "List computers by name",
		Need{On: Computers}, func(c holt.Computer) string { return c.Name }, Owner(func(c holt.Computer) holt.ComputerID { return c.ID }))
	GetComputer    = Get[OneComputer, holt.Computer](computerPath, "getComputer", "Get a computer", Need{On: Content, Self: true})
	UpdateComputer = Patch[ComputerBody[holt.ComputerUpdate], holt.Computer](computerPath, "updateComputer", "Rename a computer, or change when it is paused for being idle",
		changeComputer, Doc("The change takes effect at once in every state; a rename waits for a change of the computer that is in progress. The id stays the same. Previews and SSH use the new name, and the old name is free."))
	DeleteComputer = Delete[ComputerKeyed, holt.DeletedComputer](computerPath, "deleteComputer", "Delete a computer with its root disk and the workspace that was made with it",
		changeComputer, Doc("Its snapshots and schedules are deleted too. Its forks are kept; the answer names them."))
	StartComputer  = Post[ComputerKeyed, holt.Computer](computerPath+"/start", "startComputer", "Start a stopped computer or resume a paused one; a running one stays as it is", changeComputer)
	StopComputer   = Post[ComputerKeyed, holt.Computer](computerPath+"/stop", "stopComputer", "Shut a computer down and keep both disks", changeComputer)
	PauseComputer  = Post[ComputerKeyed, holt.Computer](computerPath+"/pause", "pauseComputer", "Pause a running computer: keep its memory and both disks, and end its machine", Need{On: Computer, Change: true, Self: true}, snapshotsTag)
	ResumeComputer = Post[ComputerKeyed, holt.Computer](computerPath+"/resume", "resumeComputer", "Resume a paused computer where it was paused; a running one stays as it is", changeComputer, snapshotsTag)
	ResizeComputer = Post[ComputerBody[holt.ResizeSpec], holt.ResizedComputer](computerPath+"/resize", "resizeComputer", "Change a computer's processors, memory or root disk",
		changeComputer, Doc("A running computer gets more of each at once, and its root file system grows; fewer processors and less memory take effect at the next start. "+
			"A stopped computer gets the new size at its next start; a paused one gets what can be added when it resumes. A root disk cannot shrink: invalid_argument. "+
			"The answer says what the guest uses now and what is still pending."))
	ComputerLogs = Get[ComputerLog, Stream](computerPath+"/logs", "computerLogs", "Read the machine's console log",
		asRoot, Bytes("text/plain", "the log's bytes"), Audited(AuditAll))
)

// What keeps computers awake.
var (
	WhyAwake = Get[OneComputer, holt.Awake](computerPath+"/awake", "whyAwake", "Say why a computer is awake, and when it is paused",
		readComputer, Doc("The answer names each run, terminal, connection, file access and hold that uses the computer, and its own activity. The call does not wake the computer."))
	HoldComputer = Post[ComputerBody[holt.HoldSpec], holt.Hold](computerPath+"/holds", "holdComputer", "Keep a computer awake for a while",
		changeComputer, Created, Doc("The computer is not paused for being idle until the hold expires or is released. A paused computer stays paused; the hold counts once it resumes."))
	ListHolds   = GetList[ComputerList](computerPath+"/holds", "listHolds", "List the holds of a computer", readComputer, func(h holt.Hold) string { return string(h.ID) })
	ReleaseHold = Delete[HoldKeyed, None](computerPath+"/holds/{hold}", "releaseHold", "Release a hold", changeComputer)
)

// What computers use and may use.
var (
	ListStats = GetList[Paging]("/v1/stats", "listComputerStats", "List what computers use of their host, by name",
		Need{On: Computers}, func(s holt.ComputerStats) string { return s.Computer }, Owner(func(s holt.ComputerStats) holt.ComputerID { return s.ComputerID }), Tag("computers"),
		Doc("It contacts and wakes no computer and may be called every second. Compute rates from the counters of two answers."))
	GetStats = Get[OneComputer, holt.ComputerStats](computerPath+"/stats", "getComputerStats", "Get what a computer uses of its host",
		readComputer, Doc("The call does not ask or wake the computer. Compute rates from the counters of two answers."))
	SetBudget = Patch[ComputerBody[holt.BudgetChange], holt.Budget](computerPath+"/budget", "setBudget", "Change what a computer and all its forks may use",
		changeTenant, Doc("The first call starts the budget. It counts what the computer and all its present and future forks use from then on, as the host measures it. "+
			"When a part of it is used up, all of them are paused with their memory within 15 seconds. Until the budget is raised, calls that would wake, start, fork or restore one fail with too_many. "+
			"getComputer shows the budget. After the computer is deleted its id still names the budget, as long as there are forks."))
	RemoveBudget = Delete[ComputerKeyed, None](computerPath+"/budget", "removeBudget", "Remove the budget of a computer",
		changeTenant, Doc("Budgets of the computers that it was forked from stay. not_found: the computer has no budget of its own."))
)

// The network of computers.
var (
	GetNetwork = Get[OneComputer, holt.NetworkPolicy](computerPath+"/network", "getComputerNetwork", "Get what a computer may reach", Need{On: Computer, Self: true})
	SetNetwork = Put[NetworkChange, holt.NetworkPolicy](computerPath+"/network", "setComputerNetwork", "Change what a computer may reach",
		changeTenant, Doc("The policy takes effect at once, and for a computer that is not running at its next start. Connections that are no longer allowed are closed before the answer."))
	GetTraffic  = Get[OneComputer, holt.NetworkTraffic](computerPath+"/network/traffic", "getComputerTraffic", "Get what a computer has sent and received, by destination", Need{On: Computer, Self: true})
	ListSecrets = GetList[ComputerList](computerPath+"/secrets", "listComputerSecrets", "List the host secrets of a computer, without their values", readComputer, func(s holt.ComputerSecret) string { return s.Name })
	SetSecret   = Put[SecretChange, holt.ComputerSecret](computerPath+"/secrets/{secret}", "setComputerSecret", "Give a computer a host secret, or replace it",
		changeComputer, Doc("The proxy of the computer's network adds the value to requests to that host. The value never enters the computer, and no call returns it. "+
			"It applies to requests that begin afterwards. Programs that are already running use the proxy only if they were started while the computer had a secret."))
	DeleteSecret = Delete[SecretKeyed, None](computerPath+"/secrets/{secret}", "deleteComputerSecret", "Remove a host secret from a computer, at once", changeComputer)
)
