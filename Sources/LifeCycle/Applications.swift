/// The applications by number, each in a block of its own. The table of a dictionary is up to three times as large as
/// its values, and an application is large.
public struct Applications: Equatable, Sendable {
    /// Shared by copies of the machine until one of them changes it.
    private final class Block: @unchecked Sendable {
        /// nil only while it is being removed.
        var application: Application?

        init(_ application: Application?) { self.application = application }
    }

    private var blocks: [ApplicationNumber: Block] = [:]

    public var count: Int { blocks.count }
    public var isEmpty: Bool { blocks.isEmpty }
    public var keys: some Collection<ApplicationNumber> { blocks.keys }
    public var values: some Sequence<Application> { blocks.values.lazy.compactMap(\.application) }

    public internal(set) subscript(number: ApplicationNumber) -> Application? {
        get { blocks[number]?.application }
        _modify {
            let index = blocks.index(forKey: number) ?? add(number)
            if !isKnownUniquelyReferenced(&blocks.values[index]) {
                blocks.values[index] = Block(blocks.values[index].application)
            }
            defer { if blocks.values[index].application == nil { blocks.remove(at: index) } }
            yield &blocks.values[index].application
        }
    }

    private mutating func add(_ number: ApplicationNumber) -> Dictionary<ApplicationNumber, Block>.Index {
        blocks[number] = Block(nil)
        guard let index = blocks.index(forKey: number) else { preconditionFailure("it was added") }
        return index
    }

    public static func == (left: Self, right: Self) -> Bool {
        left.blocks.mapValues(\.application) == right.blocks.mapValues(\.application)
    }
}
