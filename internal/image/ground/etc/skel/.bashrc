# ~/.bashrc: commands for bash. Terminals, SSH logins and runs (holt computer run, jobs,
# schedules) execute it through ~/.profile.

# This part is for people: prompt, history, aliases and completion.
case $- in
*i*)
	HISTCONTROL=ignoreboth
	HISTSIZE=10000
	HISTFILESIZE=20000
	shopt -s histappend checkwinsize
	case $TERM in
	xterm-color | *-256color) PS1='\[\033[01;32m\]\u@\h\[\033[00m\]:\[\033[01;34m\]\w\[\033[00m\]\$ ' ;;
	*) PS1='\u@\h:\w\$ ' ;;
	esac
	case $TERM in
	xterm* | rxvt*) PS1="\[\e]0;\u@\h: \w\a\]$PS1" ;;
	esac
	alias ls='ls --color=auto' grep='grep --color=auto'
	alias ll='ls -alF' la='ls -A' l='ls -CF'
	[ ! -f ~/.bash_aliases ] || . ~/.bash_aliases
	if ! shopt -oq posix && [ -f /usr/share/bash-completion/bash_completion ]; then
		. /usr/share/bash-completion/bash_completion
	fi
	;;
esac

# What follows counts everywhere: installers add their lines here. Their output goes to
# standard error in runs. What needs a terminal belongs above.
