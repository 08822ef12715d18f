package schedule

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // a host without zone files knows the zones too

	"github.com/robfig/cron/v3"

	"holt"
)

// Timetable says when a schedule is due: a cron expression by the clock of a time zone.
//
// Only the fields are the library's. It is asked by a clock that has no summer time, as
// cron itself does it, since the library leaves out what the missing hour of
// spring holds and does twice what the repeated hour of autumn holds:
//
//   - An expression whose minute and hour are both fixed means a time of the day. One that
//     does not exist on a day is due when the clock has been put forward, and one
//     that exists twice is due the first time.
//   - One with * as (the beginning of) its minute or hour means intervals. These go
//     on as time does: nothing is due in the hour that does not exist, and all of
//     it in both of the hours that exist twice.
type Timetable struct {
	spec  *cron.SpecSchedule
	zone  *time.Location
	fixed bool // times of the day, not intervals
}

// everyDay are the descriptors that can be given for the five fields.
var everyDay = map[string]bool{"@hourly": true, "@daily": true, "@midnight": true, "@weekly": true, "@monthly": true, "@yearly": true, "@annually": true}

// starBit marks in the library's sets that a field begins with *.
const starBit = 1 << 63

const (
	mostCron = 200 // bytes
	mostZone = 64
)

// Parse reads a cron expression and the IANA name of a time zone; "" is UTC.
//
// Errors: InvalidArgument.
func Parse(expression, zone string) (*Timetable, error) {
	loc, err := parseZone(zone)
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(expression)
	if len(expression) > mostCron || !onlyCron.MatchString(expression) {
		return nil, badCron(expression, "it is not one")
	}
	fixed := true
	switch {
	case len(fields) == 1 && everyDay[strings.ToLower(fields[0])]:
		fields[0] = strings.ToLower(fields[0])
		fixed = fields[0] != "@hourly"
	case len(fields) == 5:
		fixed = fields[0][0] != '*' && fields[1][0] != '*'
		fields[4] = sundays(fields[4])
	case len(fields) == 6:
		return nil, badCron(expression, "it has six fields: there are no seconds")
	default:
		return nil, badCron(expression, fmt.Sprintf("it has %d fields", len(fields)))
	}
	parsed, err := cron.ParseStandard(strings.Join(fields, " "))
	if err != nil {
		return nil, badCron(expression, err.Error())
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, badCron(expression, "it is no time of the calendar")
	}
	if len(fields) == 5 { // as crontab(5) has it, */2 is a star, too
		spec.Dom |= star(fields[2])
		spec.Dow |= star(fields[4])
	}
	spec.Location = time.UTC // see next
	t := &Timetable{spec, loc, fixed}
	if t.Next(time.Now()).IsZero() {
		return nil, badCron(expression, "no day is such a one")
	}
	return t, nil
}

// onlyCron is what an expression is made of; what the library takes besides, as
// TZ=…, is not meant.
var onlyCron = regexp.MustCompile(`^[0-9A-Za-z*/,\-?@ \t]+$`)

func star(field string) uint64 {
	if strings.HasPrefix(field, "*") || strings.HasPrefix(field, "?") {
		return starBit
	}
	return 0
}

func badCron(expression, why string) error {
	return holt.Errorf(holt.InvalidArgument, "%q is no cron expression: %s", clip(expression), why).
		WithHint(`five fields: minute, hour, day of the month, month, day of the week, as "0 3 * * *" or "*/15 8-18 * * MON-FRI"; or @hourly, @daily, @weekly, @monthly, @yearly`)
}

// sundayRE are the parts of a day of the week that end with 7, which is Sunday for
// cron, and nothing for the library.
var sundayRE = regexp.MustCompile(`^(?:([0-7])-)?7(?:/([0-9]{1,3}))?$`)

// sundays writes 7 as 0.
func sundays(field string) string {
	parts := strings.Split(field, ",")
	for i, part := range parts {
		m := sundayRE.FindStringSubmatch(part)
		if m == nil {
			continue
		}
		first, step := 7, 1
		if m[1] != "" {
			first, _ = strconv.Atoi(m[1]) // a digit
		}
		if m[2] != "" {
			step, _ = strconv.Atoi(m[2])
		}
		if step == 0 {
			continue // the library says what is wrong
		}
		var days []string
		for day := first; day <= 7; day += step {
			days = append(days, strconv.Itoa(day%7))
		}
		parts[i] = strings.Join(days, ",")
	}
	return strings.Join(parts, ",")
}

func parseZone(name string) (*time.Location, error) {
	if name == "" {
		name = "UTC"
	}
	var zone *time.Location
	err := fmt.Errorf("it is no name")
	if len(name) <= mostZone && name != "Local" {
		zone, err = time.LoadLocation(name)
	}
	if err != nil {
		return nil, holt.Errorf(holt.InvalidArgument, "there is no time zone %q", clip(name)).
			WithHint("give its IANA name, as Europe/Berlin, America/New_York or UTC")
	}
	return zone, nil
}

// Zone returns the name of its time zone.
func (t *Timetable) Zone() string { return t.zone.String() }

// Next returns the first due time after an instant, zero if there is none for years.
func (t *Timetable) Next(after time.Time) time.Time {
	at := after.In(t.zone)
	start, end := at.ZoneBounds() // between them the zone's clock is not changed; zero: for ever
	for offset := offsetOf(at); ; offset = offsetOf(start) {
		if due := t.within(at.UTC().Add(offset), offset, start, end); !due.IsZero() {
			return due.In(t.zone)
		}
		if end.IsZero() || end.Sub(after) > mostYears {
			return time.Time{}
		}
		at = end.Add(-1) // what comes after that
		start, end = end.ZoneBounds()
	}
}

// mostYears is how far the library looks.
const mostYears = 5 * 366 * 24 * time.Hour

// within returns the first due time after the clock showed wall, before its next change at
// end, or just then; zero if there is none.
func (t *Timetable) within(wall time.Time, offset time.Duration, start, end time.Time) time.Time {
	if t.fixed && !start.IsZero() {
		if again := offsetOf(start.Add(-1)) - offset; again > 0 { // what it shows for the second time
			if first := start.UTC().Add(offset + again - 1); wall.Before(first) {
				wall = first
			}
		}
	}
	next := t.spec.Next(wall)
	if next.IsZero() {
		return next
	}
	due := next.Add(-offset)
	if end.IsZero() || due.Before(end) {
		return due
	}
	if t.fixed && due.Before(end.Add(offsetOf(end)-offset)) { // what it does not show
		return end
	}
	return time.Time{}
}

// offsetOf is by how much the clock of t's zone is ahead of UTC then.
func offsetOf(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// Between calls yield with each due time after one instant up to another, until that returns false.
func (t *Timetable) Between(after, until time.Time, yield func(time.Time) bool) {
	for due := t.Next(after); !due.IsZero() && !due.After(until); due = t.Next(due) {
		if !yield(due) {
			return
		}
	}
}

// clip keeps a hostile value from filling a log or a terminal.
func clip(s string) string { return holt.Clip(s, 80) }
