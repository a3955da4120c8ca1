// The answers of the API, made from its OpenAPI document by tests/serve/test_page_types.py. To write it:
// STREAMKIT_WRITE=1 python -m pytest tests/serve/test_page_types.py

export interface AcknowledgedProblem {
  id: string;
}

export interface Acknowledgement {
  source: string;
}

export interface ActionResult {
  done: string[];
  failed: SourceProblem[];
}

export interface AlarmChange {
  number: number;
  time_s: number;
  kind: string;
  alarm: string;
  source: string;
  text: string;
}

export interface AlarmView {
  name: string;
  rule: string;
  words: string;
  count: number;
  raised: RaisedAlarm[];
}

export interface AuditEntry {
  number: number;
  time_s: number;
  who: string;
  role: string;
  address: string;
  action: string;
  target: string;
  detail: Record<string, any>;
  status: number;
  outcome: string;
  request_id?: string;
}

export interface BottleneckView {
  stage: string | null;
  text: string;
}

export interface ChangedSource {
  uri?: string | null;
  options?: Record<string, any> | null;
}

export interface ChangedSources {
  version: string;
  ids: string[] | null;
  sources: SourceView[];
}

export interface ConfigEdit {
  text: string;
  hash: string;
}

export interface ConfigText {
  text: string;
}

export interface ConfigView {
  name: string;
  text: string;
  hash: string;
  applied: boolean;
  rejected: string;
  read_only: string;
}

export interface CountRow {
  source: string;
  name: string;
  stage: string;
  area: string;
  kind: string;
  label: string;
  values: number[];
  before: number[];
}

export interface CountsView {
  step: string;
  zone: string;
  edges: number[];
  rows: CountRow[];
}

export interface Credentials {
  token?: string;
  name?: string;
  password?: string;
  new_password?: string;
}

export interface CsvLine {
  line: number;
  id: string;
  address: string;
  problem: string;
}

export interface CsvResult {
  lines: CsvLine[];
  added?: string[];
}

export interface DifferenceView {
  kind: "source" | "setting";
  id: string;
  text: string;
}

export interface DifferencesEdit {
  hash: string;
  dry_run?: boolean;
}

export interface DifferencesView {
  differences: DifferenceView[];
  kept: boolean;
  hash: string;
}

export interface EditView {
  problems: ProblemView[];
  diff: string;
  hash: string;
  saved: boolean;
  rebuilds: string[];
}

export interface EndedSubscription {
  endpoint: string;
}

export interface ErrorResponse {
  error: string;
  request_id: string;
}

export interface Escalation {
  minutes: number | null;
}

export interface EventNames {
  sources: string[];
  stages: string[];
  kinds: string[];
  labels: string[];
}

export interface EventView {
  number: number;
  time_s: number;
  source: string;
  frame: number;
  pts_s: number;
  kind: string;
  stage: string;
  track_id: number | null;
  label: string | null;
  text: string;
  data: Record<string, any>;
  image: boolean;
  clip: boolean;
  clip_s: number | null;
  snapshot: boolean;
}

export interface GapView {
  from_s: number;
  to_s: number;
  cause: string;
}

export interface HTTPValidationError {
  detail?: ValidationError[];
}

export interface HeatMapView {
  source: string;
  name: string;
  stage: string;
  time_s: number;
}

export interface Layout {
  name: string;
  sources: string[];
  size: 1 | 4 | 9 | 16 | 25;
}

export interface Layouts {
  layouts: Layout[];
  tours: Tour[];
}

export interface LogMessage {
  number: number;
  time_s: number;
  level: string;
  place: string;
  text: string;
  request_id: string;
}

export interface NewPerson {
  name: string;
  role: "viewer" | "operator" | "admin";
  groups?: string[] | null;
}

export interface NewSource {
  id: string;
  uri: string;
  options?: Record<string, any>;
}

export interface NewSubscription {
  endpoint: string;
  keys: PushKeys;
  expirationTime?: number | null;
}

export interface NewToken {
  name: string;
  role: "viewer" | "operator" | "admin";
  groups?: string[] | null;
}

export interface OccupancyView {
  source: string;
  name: string;
  stage: string;
  area: string;
  count: number | null;
  since_s: number;
  peak_today: number;
}

export interface OneTimePassword {
  name: string;
  password: string;
}

export interface OpenCounts {
  alert: Record<string, number>;
  notice: Record<string, number>;
}

export interface PasswordChange {
  password: string;
  new_password: string;
}

export interface PersonRights {
  role: "viewer" | "operator" | "admin";
  groups?: string[] | null;
}

export interface PersonView {
  name: string;
  role: "viewer" | "operator" | "admin";
  groups: string[] | null;
  origin: string;
  created_s: number;
  created_by: string;
  one_time: boolean;
  seen_s: number | null;
  sessions: number;
}

export interface PipelineProblem {
  id: string;
  severity: "error" | "warning";
  kind: string;
  text: string;
  since_s: number;
  source: string | null;
  sources: string[];
  stage: string | null;
  alarms: string[];
  link: string;
  acknowledged: boolean;
}

export interface ProblemView {
  line: number;
  column: number;
  text: string;
  warning: boolean;
}

export interface PushKeys {
  p256dh: string;
  auth: string;
}

export interface PushView {
  public_key: string;
  problem: string;
  browsers: number;
  silenced: Record<string, number>;
  escalate_s: number | null;
  counts: Record<string, number>;
}

export interface RaisedAlarm {
  alarm: string;
  source: string;
  since_s: number;
  text: string;
  acknowledged: boolean;
}

export interface RecordedDayView {
  day: string;
  recorded_s: number;
}

export interface RecordingTimeline {
  segments: SegmentView[];
  gaps: GapView[];
  motion: number[];
  motion_by: string;
  events: number[];
}

export interface RecordingView {
  source: string;
  first_s: number;
  last_s: number;
  bytes: number;
  days: RecordedDayView[];
}

export interface ReviewChange {
  reviewed?: boolean | null;
  kept?: boolean | null;
  comment?: string | null;
}

export interface ReviewDetail {
  item: ReviewView;
  events: number[];
}

export interface ReviewView {
  id: number;
  source: string;
  name: string;
  stage: string;
  kind: string;
  label: string | null;
  track_id: number | null;
  severity: "alert" | "notice";
  text: string;
  started_s: number;
  ended_s: number;
  events: number;
  number: number;
  image: boolean;
  box: [number, number, number, number] | null;
  path: [number, number, number][];
  reviewed_by: string | null;
  reviewed_s: number | null;
  kept: boolean;
  comment: string;
}

export interface ReviewedItems {
  ids: number[];
  reviewed?: boolean;
}

export interface SegmentView {
  id: number;
  from_s: number;
  to_s: number;
  width: number;
  height: number;
  codec: string;
  bytes: number;
  event: boolean;
}

export interface SeriesValues {
  source: string;
  label: string;
  values: [number, number][];
}

export interface SeriesView {
  name: string;
  unit: string;
  sums: boolean;
  from_s: number;
  to_s: number;
  step_s: number;
  series: SeriesValues[];
}

export interface SessionView {
  id: string;
  name: string;
  role: "viewer" | "operator" | "admin";
  address: string;
  agent: string;
  begun_s: number;
  used_s: number;
  own: boolean;
}

export interface Setting {
  name: string;
  value: any;
  help: string;
  schema: Record<string, any>;
}

export interface ShapeOptionView {
  stage: string;
  type: string;
  option: string;
  kind: string;
  single: boolean;
  named: boolean;
  hides: boolean;
  help: string;
  units: string;
  shapes: Record<string, number[][]>;
  by_source: boolean;
  sources: Record<string, string[]>;
  fixed: string;
}

export interface ShapesEdit {
  option: string;
  shapes: Record<string, [number, number][]>;
  hash: string;
  sources?: Record<string, string[]> | null;
  units?: "pixels" | "share" | null;
  dry_run?: boolean;
}

export interface ShapesView {
  hash: string;
  sizes: Record<string, [number, number]>;
  options: ShapeOptionView[];
}

export interface SignedIn {
  signed_in: boolean;
  name: string;
  role: string;
  groups: string[] | null;
  has_password: boolean;
  people: boolean;
  provider: string;
}

export interface Silence {
  minutes: number;
  source?: string;
}

export interface SourceAction {
  ids: string[];
  action: "pause" | "resume" | "change";
  group?: string | null;
  site?: string | null;
  add_tags?: string[];
  remove_tags?: string[];
}

export interface SourceOption {
  name: string;
  help: string;
  type: string;
  schema: Record<string, any>;
  default: any;
  common: boolean;
}

export interface SourceProblem {
  id: string;
  problem: string;
}

export interface SourceTimeline {
  source: string;
  counts: number[];
}

export interface SourceView {
  id: string;
  name: string;
  group: string;
  site: string;
  tags: string[];
  order: number;
  address: string;
  options: Record<string, any>;
  kind: string;
  state: string;
  cause: string | null;
  message: string;
  since_s: number;
  quiet_s: number | null;
  frames: number;
  fps: number;
  dropped: Record<string, number>;
  reconnects: Record<string, number>;
  latency: Record<string, number>;
  counts: Record<string, number>;
  packets: boolean;
}

export interface SourcesCsv {
  csv: string;
  mode?: "check" | "valid" | "all";
}

export interface StageView {
  id: string;
  type: string;
  kind: string;
  where: string;
  inputs: string[];
  adds: string[];
  crossings: string[];
  frames: number;
  failed: number;
  us_per_frame: number | null;
  fps: number;
  busy: number;
  queue: number;
  settings: Setting[];
}

export interface Status {
  version: string;
  time_s: number;
  device: string;
  ready: boolean;
  opening: string[];
  stopping: boolean;
  uptime_s: number;
  frames: number;
  detections: Record<string, number>;
  events: Record<string, number>;
  counts: Record<string, number>;
  emits: string[];
  records: string[];
  alarms: RaisedAlarm[];
  problems: PipelineProblem[];
  bottleneck: BottleneckView;
  last_event: number;
  allow_files: boolean;
  hides: string[];
  differs: number;
  edit_rejected: boolean;
}

export interface StoreView {
  bytes: number;
  counts: Record<string, number>;
  problem: string;
}

export interface TestedConnection {
  ok: boolean;
  cause: string | null;
  error: string;
  codec: string | null;
  width: number | null;
  height: number | null;
  fps: number | null;
  duration_s: number | null;
  image: string | null;
  took_s: number;
}

export interface TestedSource {
  id?: string;
  uri?: string | null;
  options?: Record<string, any> | null;
}

export interface Timeline {
  from_s: number;
  to_s: number;
  bin_s: number;
  sources: SourceTimeline[];
}

export interface TokenCreated {
  name: string;
  role: "viewer" | "operator" | "admin";
  token: string;
}

export interface TokenView {
  name: string;
  role: "viewer" | "operator" | "admin";
  origin: string;
  created_s: number | null;
  created_by: string;
  sessions: number;
  groups: string[] | null;
}

export interface Tour {
  name: string;
  stops: TourStop[];
}

export interface TourStop {
  layout: string;
  seconds: number;
}

export interface ValidationError {
  loc: (string | number)[];
  msg: string;
  type: string;
  input?: any;
  ctx?: Record<string, any>;
}
