//! `zfs userspace`, `groupspace` and `projectspace` (spec 09, sections 3.5 and 3.7).

use super::name;
use super::query::dataset_at;
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, devices, operands};
use crate::host_names::names_in;
use crate::property::{Precision, Writer};
use crate::source::{self, PoolClient};
use crate::table::{Align, Column, Layout, Table};
use rzfs_format::property::{NumberFormat, Values};
use rzfs_server::protocol::{
    AccountOwner, AccountQuery, AccountReport, PropertyValue, ShareReport,
};
use std::cmp::Ordering;
use std::collections::HashMap;

const OF_USERS: Grammar = Grammar {
    letters: &[
        ('H', Value::None),
        ('i', Value::None),
        ('n', Value::None),
        ('p', Value::None),
        ('o', Value::Required),
        ('s', Value::Required),
        ('S', Value::Required),
        ('t', Value::Required),
        ('d', Value::Devices),
    ],
    names: &[],
};

const OF_PROJECTS: Grammar = Grammar {
    letters: &[
        ('H', Value::None),
        ('p', Value::None),
        ('o', Value::Required),
        ('s', Value::Required),
        ('S', Value::Required),
        ('d', Value::Devices),
    ],
    names: &[],
};

/// Status when a word of a list has no meaning.
const BAD_WORD: u8 = 255;

/// Runs the command for this kind of owner.
pub(super) fn run(owner: AccountOwner, words: &[String], console: &mut Console<'_>) -> Outcome {
    let grammar = match owner {
        AccountOwner::User | AccountOwner::Group => &OF_USERS,
        AccountOwner::Project => &OF_PROJECTS,
    };
    let words = grammar.parse(words)?;
    let request = Request::of(owner, &words)?;
    let dataset = match operands(&words).as_slice() {
        [] => return Err(Failure::Usage("missing dataset name".to_owned())),
        [dataset] => dataset.clone(),
        _ => return Err(Failure::Usage("too many arguments".to_owned())),
    };
    let (mut client, dataset) = open(&dataset, &devices(&words), console)?;
    let query = AccountQuery { dataset, owners: request.owners() };
    let accounts = source::accounts(client.as_mut(), query)?;
    request.print(accounts, console)
}

/// The pool of a file system or snapshot given by name or path, and its name.
fn open(
    typed: &str,
    devices: &[String],
    console: &mut Console<'_>,
) -> Result<(Box<dyn PoolClient>, String), Failure> {
    let unopened = |reason: String| Failure::Failed(format!("cannot open '{typed}': {reason}"));
    let by_path = typed.starts_with(['/', '.']);
    let pool = name::pool_of(typed).to_owned();
    let wanted = if by_path { Vec::new() } else { vec![pool] };
    let found = source::respondents(devices, &wanted, console)?;
    let mut pools = found.pools;
    let dataset = match by_path {
        true => dataset_at(typed, &mut pools).map_err(unopened)?,
        false => typed.to_owned(),
    };
    name::check(&dataset).map_err(|error| unopened(error.to_string()))?;
    let pool = name::pool_of(&dataset);
    match pools.into_iter().find(|one| one.pool() == pool) {
        Some(client) => Ok((client, dataset)),
        None => found.outcome.and(Err(unopened("dataset does not exist".to_owned()))),
    }
}

/// A kind of account, ordered by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    PosixGroup,
    PosixUser,
    Project,
    SmbGroup,
    SmbUser,
}

/// The word of each kind in `-t`.
const KINDS: [(&str, Kind); 4] = [
    ("posixuser", Kind::PosixUser),
    ("smbuser", Kind::SmbUser),
    ("posixgroup", Kind::PosixGroup),
    ("smbgroup", Kind::SmbGroup),
];

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::PosixGroup => "POSIX Group",
            Self::PosixUser => "POSIX User",
            Self::Project => "Project",
            Self::SmbGroup => "SMB Group",
            Self::SmbUser => "SMB User",
        }
    }

    const fn owner(self) -> AccountOwner {
        match self {
            Self::PosixGroup | Self::SmbGroup => AccountOwner::Group,
            Self::PosixUser | Self::SmbUser => AccountOwner::User,
            Self::Project => AccountOwner::Project,
        }
    }

    const fn of(account: &AccountReport) -> Self {
        match (account.owner, &account.domain) {
            (AccountOwner::User, None) => Self::PosixUser,
            (AccountOwner::User, Some(_)) => Self::SmbUser,
            (AccountOwner::Group, None) => Self::PosixGroup,
            (AccountOwner::Group, Some(_)) => Self::SmbGroup,
            (AccountOwner::Project, _) => Self::Project,
        }
    }

    /// The kinds that a command shows without `-t`.
    fn all_of(owner: AccountOwner) -> Vec<Self> {
        match owner {
            AccountOwner::User => vec![Self::PosixUser, Self::SmbUser],
            AccountOwner::Group => vec![Self::PosixGroup, Self::SmbGroup],
            AccountOwner::Project => vec![Self::Project],
        }
    }
}

/// A column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    Type,
    Name,
    Used,
    Quota,
    ObjectsUsed,
    ObjectQuota,
}

impl Field {
    const ALL: [Self; 6] =
        [Self::Type, Self::Name, Self::Used, Self::Quota, Self::ObjectsUsed, Self::ObjectQuota];
    /// The fields allowed for `-s` and `-S`.
    const SORTABLE: [Self; 4] = [Self::Type, Self::Name, Self::Used, Self::Quota];

    const fn word(self) -> &'static str {
        match self {
            Self::Type => "type",
            Self::Name => "name",
            Self::Used => "used",
            Self::Quota => "quota",
            Self::ObjectsUsed => "objused",
            Self::ObjectQuota => "objquota",
        }
    }

    fn column(self) -> Column {
        let align = match self {
            Self::Type | Self::Name => Align::Left,
            Self::Used | Self::Quota | Self::ObjectsUsed | Self::ObjectQuota => Align::Right,
        };
        Column { header: self.word().to_ascii_uppercase(), align, width: 0 }
    }
}

/// The owner of an account in a list: names come before numbers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Holder {
    Name(String),
    Number(u32),
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// An account as a row.
struct Row {
    kind: Kind,
    holder: Holder,
    bytes: Option<ShareReport>,
    objects: Option<ShareReport>,
}

impl Row {
    fn new(account: AccountReport, names: &Names) -> Self {
        let kind = Kind::of(&account);
        let holder = match account.domain {
            Some(domain) => Holder::Name(format!("{domain}-{}", account.id)),
            None => match names.of(account.owner, account.id) {
                Some(name) => Holder::Name(name.to_owned()),
                None => Holder::Number(account.id),
            },
        };
        Self { kind, holder, bytes: account.bytes, objects: account.objects }
    }

    fn compare(&self, other: &Self, field: Field) -> Ordering {
        let bytes = |row: &Self| row.bytes.unwrap_or(ShareReport { used: 0, quota: 0 });
        match field {
            Field::Type => self.kind.cmp(&other.kind),
            Field::Name => self.holder.cmp(&other.holder),
            Field::Used => bytes(self).used.cmp(&bytes(other).used),
            Field::Quota => bytes(self).quota.cmp(&bytes(other).quota),
            Field::ObjectsUsed | Field::ObjectQuota => Ordering::Equal,
        }
    }

    fn cell(&self, field: Field, writer: &Writer) -> String {
        let (share, format) = match field {
            Field::Type => return self.kind.name().to_owned(),
            Field::Name => return self.holder.to_string(),
            Field::Used => (self.bytes.map(|share| share.used), NumberFormat::Bytes),
            Field::Quota => (self.bytes.map(|share| share.quota), NumberFormat::BytesOrNone),
            Field::ObjectsUsed => (self.objects.map(|share| share.used), NumberFormat::Scaled),
            Field::ObjectQuota => {
                (self.objects.map(|share| share.quota), NumberFormat::ScaledOrNone)
            }
        };
        let number = share.map_or(PropertyValue::Unset, PropertyValue::Number);
        writer.write(Values::Number(format), &number)
    }
}

/// Names of users and groups on this host.
#[derive(Default)]
struct Names {
    users: HashMap<u64, String>,
    groups: HashMap<u64, String>,
}

impl Names {
    fn of_host() -> Self {
        Self { users: names_in("/etc/passwd"), groups: names_in("/etc/group") }
    }

    fn of(&self, owner: AccountOwner, id: u32) -> Option<&str> {
        let names = match owner {
            AccountOwner::User => &self.users,
            AccountOwner::Group => &self.groups,
            AccountOwner::Project => return None,
        };
        names.get(&u64::from(id)).map(String::as_str)
    }
}

/// A parsed command line.
struct Request {
    kinds: Vec<Kind>,
    fields: Vec<Field>,
    /// The sort keys with their directions.
    order: Vec<(Field, Direction)>,
    names: Names,
    layout: Layout,
    precision: Precision,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Ascending,
    Descending,
}

impl Request {
    fn of(owner: AccountOwner, words: &[Word]) -> Result<Self, Failure> {
        let flag = |letter| words.contains(&Word::Flag(letter));
        let mut request = Self {
            kinds: Kind::all_of(owner),
            fields: Field::ALL.to_vec(),
            order: Vec::new(),
            names: if flag('n') { Names::default() } else { Names::of_host() },
            layout: if flag('H') { Layout::Scripted } else { Layout::Human },
            precision: if flag('p') { Precision::Exact } else { Precision::Rounded },
        };
        for word in words {
            match word {
                Word::Option('o', list) => {
                    let known = |word: &str| Field::ALL.into_iter().find(|one| one.word() == word);
                    request.fields = parse_list('o', list, known)?;
                }
                Word::Option('t', list) if list == "all" => {
                    request.kinds = KINDS.iter().map(|(_, kind)| *kind).collect();
                }
                Word::Option('t', list) => {
                    let known = |word: &str| KINDS.iter().find(|(name, _)| *name == word);
                    request.kinds =
                        parse_list('t', list, |word| known(word).map(|(_, kind)| *kind))?;
                }
                Word::Option(letter @ ('s' | 'S'), word) => {
                    let field = Field::SORTABLE.into_iter().find(|one| one.word() == word);
                    let unknown = || Failure::Usage(format!("invalid field '{word}'"));
                    let direction = match letter {
                        's' => Direction::Ascending,
                        _ => Direction::Descending,
                    };
                    request.order.push((field.ok_or_else(unknown)?, direction));
                }
                _ => {}
            }
        }
        // Ties between rows.
        request.order.extend([Field::Type, Field::Name].map(|field| (field, Direction::Ascending)));
        Ok(request)
    }

    /// The kinds of owners to query.
    fn owners(&self) -> Vec<AccountOwner> {
        let all = [AccountOwner::User, AccountOwner::Group, AccountOwner::Project];
        all.into_iter().filter(|one| self.kinds.iter().any(|kind| kind.owner() == *one)).collect()
    }

    fn print(&self, accounts: Vec<AccountReport>, console: &mut Console<'_>) -> Outcome {
        let mut rows: Vec<_> =
            accounts.into_iter().map(|account| Row::new(account, &self.names)).collect();
        rows.sort_by(|a, b| {
            let by = |(field, direction): &(Field, Direction)| match direction {
                Direction::Ascending => a.compare(b, *field),
                Direction::Descending => b.compare(a, *field),
            };
            self.order.iter().map(by).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        });
        let writer = Writer { calendar: console.calendar.clone(), precision: self.precision };
        let mut table = Table::new(self.fields.iter().map(|field| field.column()).collect());
        for row in &rows {
            table.push(self.fields.iter().map(|field| row.cell(*field, &writer)).collect());
        }
        // Columns are as wide as all accounts of these owners need, shown or not.
        table.fix_widths();
        let mut shown = rows.iter().map(|row| self.kinds.contains(&row.kind));
        table.retain_rows(|| shown.next().unwrap_or(false));
        Ok(table.print(self.layout, console.out)?)
    }
}

/// Parses the words in the list of an option.
fn parse_list<T>(
    option: char,
    list: &str,
    meaning: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, Failure> {
    let unknown = |word| format!("invalid type '{word}' for -{option} option");
    let of = |word| meaning(word).ok_or_else(|| Failure::Status(unknown(word), BAD_WORD));
    list.split(',').map(of).collect()
}
