# Restrict this process with Landlock and seccomp, then execute a command.
#
# The words are `CALLS ATTRIBUTES FILTER COUNT RIGHTS PATH … -- COMMAND…`, made by landlock.py: the numbers
# of system calls, the bytes of the ruleset and of the filter, and the rights to each path. Without a command
# it ends after the restriction. Every failure ends it before the command runs. It loads no module: that would
# take longer than all it does. landlock_launcher.py does the same where there is no Perl.

my ($create_ruleset, $add_rule, $restrict_self) = (444, 445, 446);
my $min_version = 6;           # the first that keeps signals inside
my $file_rights = 0xC007;      # that apply to a file
my $open_path   = 0x280000;    # O_PATH | O_CLOEXEC

sub stop { print STDERR "$_[0]\n"; exit 126 }

sub call {    # raise the kernel's error; `syscall` takes at most these arguments by value
    my $result = syscall($_[0], $_[1], $_[2], $_[3], $_[4], $_[5]);
    stop("$!") if $result < 0;
    return $result;
}

my ($calls, $attributes, $filter, $count, @words) = @ARGV;
stop("no system call filter for $count") if $calls eq "";
my ($prctl, $capset, $openat, $close, $seccomp) = map { 0 + $_ } split /,/, $calls;
stop("the policy is incomplete") unless $words[ 2 * $count ] eq "--";

call($prctl, 38, 1, 0, 0, 0);    # no new privileges
syscall($prctl, 24, $_, 0, 0, 0) for 0 .. 63;    # drop capabilities; fails beyond the last
my ($header, $no_capabilities) = (pack("Ll", 0x20080522, 0), "\0" x 24);
call($capset, $header, $no_capabilities, 0, 0, 0);

my $version = syscall($create_ruleset, 0, 0, 1);
stop("the kernel's Landlock is version $version, $min_version is needed") if $version < $min_version;
$attributes = pack("H*", $attributes);
my $ruleset = call($create_ruleset, $attributes, length($attributes), 0, 0, 0);
for (1 .. $count) {
    my ($rights, $path) = (0 + shift(@words), shift(@words));
    my $fd = syscall($openat, -100, $path, $open_path, 0);
    next if $fd < 0;
    $rights &= $file_rights unless -d $path;
    my $rule = pack("Ql", $rights, $fd);
    call($add_rule, $ruleset, 1, $rule, 0, 0);
    syscall($close, $fd);
}
call($restrict_self, $ruleset, 0, 0, 0, 0);

$filter = pack("H*", $filter);
my $program = pack("Sx6P", length($filter) / 8, $filter);
call($seccomp, 1, 0, $program, 0, 0);

shift @words;
exit 0 unless @words;
exec { $words[0] } @words or stop("$words[0]: $!");
