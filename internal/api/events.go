package api

import "holt"

// EventsOf is which events a call follows.
type EventsOf struct {
	After    string   `query:"after" maxLength:"20" doc:"the id of the last event that was received; default: only what happens from now on"`
	LastID   string   `header:"Last-Event-ID" maxLength:"20" doc:"as after, and takes precedence over it"`
	Kind     []string `query:"kind,explode" maxItems:"32" doc:"only these kinds or nouns, such as run.ended or computer"`
	Computer string   `query:"computer" maxLength:"64" doc:"only those about this computer: name or id"`
	Follow   bool     `query:"follow" default:"true" doc:"continue with new events; false: end with the last one that is kept"`
}

// FollowEvents streams the events that the caller may see.
var FollowEvents = Get[EventsOf, Stream]("/v1/events", "followEvents", "Follow what happens: computers, runs, terminals, snapshots, workspaces, checkpoints, jobs, schedules", Need{On: Computers}, Events[holt.Event](),
	Doc("Server-sent events: the name is the event's kind, the data an Event, the id its number. The first is ready: all later events follow, so "+
		"a client that lists things after it and then applies the events misses nothing. A client that comes again with the last id it received (Last-Event-ID, or after) gets the events since then; "+
		"the last 5,000 are kept, also when the daemon is restarted. If some of the events since then are no longer kept, the first event is reset in place of ready: list everything again. "+
		"A reset also comes in the middle, to a client that reads more slowly than events happen. Comments keep a quiet stream alive; a client that reads nothing for a minute is cut off. "+
		"Each change has one event and each event is of a change that happened, with the reasons, names and states of that time."))
